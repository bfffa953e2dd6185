"""Measurements of Tidelog next to other engines and to the disk, all in one run."""
