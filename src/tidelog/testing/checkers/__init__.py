"""One promise per module, each watched by a checker that raises ``Violation``."""
