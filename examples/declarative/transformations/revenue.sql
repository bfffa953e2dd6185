CREATE MATERIALIZED VIEW revenue AS
SELECT country, count(*) AS orders, sum(cents) AS cents
FROM orders
GROUP BY country;

CREATE MATERIALIZED VIEW best_country AS
SELECT country, cents FROM revenue ORDER BY cents DESC LIMIT 1;
