# Prints SQL: tables, indexes, thousands of inserts one by one, and queries over them. Plain awk and SQL, the same each
# time it is run.
awk 'BEGIN {
    print "PRAGMA journal_mode = WAL;"
    print "CREATE TABLE IF NOT EXISTS customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);"
    print "CREATE TABLE IF NOT EXISTS sale (id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, price REAL, day INTEGER);"
    print "CREATE INDEX IF NOT EXISTS sale_by_customer ON sale (customer, day);"
    print "CREATE INDEX IF NOT EXISTS sale_by_item ON sale (item);"
    print "BEGIN;"
    for (i = 0; i < 200; i++)
        printf "INSERT INTO customer (name, city) VALUES (\"customer %d\", \"city %d\");\n", i, i % 17
    for (i = 0; i < 4000; i++)
        printf "INSERT INTO sale (customer, item, price, day) VALUES (%d, \"item %d\", %d.%02d, %d);\n",
            i % 200, i % 37, i % 90, i % 100, i % 365
    print "COMMIT;"
    print "SELECT city, count(*), round(sum(price), 2) FROM customer JOIN sale ON customer.id = sale.customer GROUP BY city"
    print "    ORDER BY 3 DESC LIMIT 3;"
    print "SELECT item, avg(price) FROM sale WHERE day BETWEEN 100 AND 200 GROUP BY item HAVING count(*) > 10 ORDER BY 2 LIMIT 3;"
    print "UPDATE sale SET price = price * 1.1 WHERE item LIKE \"item 1%\";"
    print "DELETE FROM sale WHERE day > 300;"
}'
