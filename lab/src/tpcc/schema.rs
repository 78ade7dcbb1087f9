//! The nine tables of clause 1.3, with the two secondary indexes that customers
//! by name and orders by customer need. Orders are in `orders`, ORDER being a word
//! of SQL. HISTORY has no primary key, as in the specification.
//!
//! The ten foreign keys of that clause are added when they are asked for. Those of HISTORY, of an order line's stock and of a
//! stock's item need indexes that the tables have not; the server makes them. Left out by default: the specification lets a
//! system do without, and MyRocks has none.

/// Names of all tables.
pub const TABLES: [&str; 9] =
    ["warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "item", "stock"];

/// Statements that make the tables in the current database; `foreign_keys`: with what they refer to.
pub fn statements(engine: &str, foreign_keys: bool) -> Vec<String> {
    let tables = DEFINITIONS.iter().map(|definition| format!("{definition} ENGINE={engine}"));
    // Afterwards, so that the order of the tables does not matter.
    let keys = FOREIGN_KEYS.iter().filter(|_| foreign_keys).map(ForeignKey::statement);
    tables.chain(keys).collect()
}

/// Tables whose rows are a warehouse's: name, the warehouse's column, definition without an engine. Items are nobody's.
pub fn of_warehouses() -> Vec<(&'static str, &'static str, &'static str)> {
    const COLUMNS: [&str; 9] = ["w_id", "d_w_id", "c_w_id", "h_w_id", "no_w_id", "o_w_id", "ol_w_id", "", "s_w_id"];
    let all = TABLES.into_iter().zip(COLUMNS).zip(DEFINITIONS);
    all.filter(|((_, column), _)| !column.is_empty()).map(|((name, column), text)| (name, column, text)).collect()
}

/// The definition of a table, without an engine.
pub fn definition(table: &str) -> Option<&'static str> {
    TABLES.iter().position(|name| *name == table).map(|at| DEFINITIONS[at])
}

/// What a table refers to: always the parent's primary key.
pub struct ForeignKey {
    /// The constraint's name.
    pub name: &'static str,
    /// The table that refers.
    pub child: &'static str,
    /// Its columns.
    pub columns: &'static [&'static str],
    /// The table that is referred to.
    pub parent: &'static str,
    /// Its columns, as many.
    pub referenced: &'static [&'static str],
}

impl ForeignKey {
    fn statement(&self) -> String {
        format!(
            "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({})",
            self.child,
            self.name,
            self.columns.join(", "),
            self.parent,
            self.referenced.join(", ")
        )
    }
}

/// All foreign keys of clause 1.3.
pub const FOREIGN_KEYS: [ForeignKey; 10] = [
    key("district_warehouse", "district", &["d_w_id"], "warehouse", &["w_id"]),
    key("customer_district", "customer", &["c_w_id", "c_d_id"], "district", &["d_w_id", "d_id"]),
    key("history_customer", "history", &["h_c_w_id", "h_c_d_id", "h_c_id"], "customer", &["c_w_id", "c_d_id", "c_id"]),
    key("history_district", "history", &["h_w_id", "h_d_id"], "district", &["d_w_id", "d_id"]),
    key("new_order_order", "new_order", &["no_w_id", "no_d_id", "no_o_id"], "orders", &["o_w_id", "o_d_id", "o_id"]),
    key("order_customer", "orders", &["o_w_id", "o_d_id", "o_c_id"], "customer", &["c_w_id", "c_d_id", "c_id"]),
    key("line_order", "order_line", &["ol_w_id", "ol_d_id", "ol_o_id"], "orders", &["o_w_id", "o_d_id", "o_id"]),
    key("line_stock", "order_line", &["ol_supply_w_id", "ol_i_id"], "stock", &["s_w_id", "s_i_id"]),
    key("stock_warehouse", "stock", &["s_w_id"], "warehouse", &["w_id"]),
    key("stock_item", "stock", &["s_i_id"], "item", &["i_id"]),
];

const fn key(
    name: &'static str,
    child: &'static str,
    columns: &'static [&'static str],
    parent: &'static str,
    referenced: &'static [&'static str],
) -> ForeignKey {
    ForeignKey { name, child, columns, parent, referenced }
}

const DEFINITIONS: [&str; 9] = [
    "CREATE TABLE warehouse (
        w_id INT NOT NULL,
        w_name VARCHAR(10) NOT NULL,
        w_street_1 VARCHAR(20) NOT NULL,
        w_street_2 VARCHAR(20) NOT NULL,
        w_city VARCHAR(20) NOT NULL,
        w_state CHAR(2) NOT NULL,
        w_zip CHAR(9) NOT NULL,
        w_tax DECIMAL(4,4) NOT NULL,
        w_ytd DECIMAL(14,2) NOT NULL,
        PRIMARY KEY (w_id))",
    "CREATE TABLE district (
        d_id TINYINT NOT NULL,
        d_w_id INT NOT NULL,
        d_name VARCHAR(10) NOT NULL,
        d_street_1 VARCHAR(20) NOT NULL,
        d_street_2 VARCHAR(20) NOT NULL,
        d_city VARCHAR(20) NOT NULL,
        d_state CHAR(2) NOT NULL,
        d_zip CHAR(9) NOT NULL,
        d_tax DECIMAL(4,4) NOT NULL,
        d_ytd DECIMAL(14,2) NOT NULL,
        d_next_o_id INT NOT NULL,
        PRIMARY KEY (d_w_id, d_id))",
    "CREATE TABLE customer (
        c_id INT NOT NULL,
        c_d_id TINYINT NOT NULL,
        c_w_id INT NOT NULL,
        c_first VARCHAR(16) NOT NULL,
        c_middle CHAR(2) NOT NULL,
        c_last VARCHAR(16) NOT NULL,
        c_street_1 VARCHAR(20) NOT NULL,
        c_street_2 VARCHAR(20) NOT NULL,
        c_city VARCHAR(20) NOT NULL,
        c_state CHAR(2) NOT NULL,
        c_zip CHAR(9) NOT NULL,
        c_phone CHAR(16) NOT NULL,
        c_since DATETIME NOT NULL,
        c_credit CHAR(2) NOT NULL,
        c_credit_lim DECIMAL(12,2) NOT NULL,
        c_discount DECIMAL(4,4) NOT NULL,
        c_balance DECIMAL(14,2) NOT NULL,
        c_ytd_payment DECIMAL(14,2) NOT NULL,
        c_payment_cnt INT NOT NULL,
        c_delivery_cnt INT NOT NULL,
        c_data VARCHAR(500) NOT NULL,
        PRIMARY KEY (c_w_id, c_d_id, c_id),
        KEY customer_by_name (c_w_id, c_d_id, c_last, c_first))",
    "CREATE TABLE history (
        h_c_id INT NOT NULL,
        h_c_d_id TINYINT NOT NULL,
        h_c_w_id INT NOT NULL,
        h_d_id TINYINT NOT NULL,
        h_w_id INT NOT NULL,
        h_date DATETIME NOT NULL,
        h_amount DECIMAL(6,2) NOT NULL,
        h_data VARCHAR(24) NOT NULL)",
    "CREATE TABLE new_order (
        no_o_id INT NOT NULL,
        no_d_id TINYINT NOT NULL,
        no_w_id INT NOT NULL,
        PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "CREATE TABLE orders (
        o_id INT NOT NULL,
        o_d_id TINYINT NOT NULL,
        o_w_id INT NOT NULL,
        o_c_id INT NOT NULL,
        o_entry_d DATETIME NOT NULL,
        o_carrier_id TINYINT,
        o_ol_cnt TINYINT NOT NULL,
        o_all_local TINYINT NOT NULL,
        PRIMARY KEY (o_w_id, o_d_id, o_id),
        KEY orders_by_customer (o_w_id, o_d_id, o_c_id, o_id))",
    "CREATE TABLE order_line (
        ol_o_id INT NOT NULL,
        ol_d_id TINYINT NOT NULL,
        ol_w_id INT NOT NULL,
        ol_number TINYINT NOT NULL,
        ol_i_id INT NOT NULL,
        ol_supply_w_id INT NOT NULL,
        ol_delivery_d DATETIME,
        ol_quantity TINYINT NOT NULL,
        ol_amount DECIMAL(6,2) NOT NULL,
        ol_dist_info CHAR(24) NOT NULL,
        PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "CREATE TABLE item (
        i_id INT NOT NULL,
        i_im_id INT NOT NULL,
        i_name VARCHAR(24) NOT NULL,
        i_price DECIMAL(5,2) NOT NULL,
        i_data VARCHAR(50) NOT NULL,
        PRIMARY KEY (i_id))",
    "CREATE TABLE stock (
        s_i_id INT NOT NULL,
        s_w_id INT NOT NULL,
        s_quantity SMALLINT NOT NULL,
        s_dist_01 CHAR(24) NOT NULL,
        s_dist_02 CHAR(24) NOT NULL,
        s_dist_03 CHAR(24) NOT NULL,
        s_dist_04 CHAR(24) NOT NULL,
        s_dist_05 CHAR(24) NOT NULL,
        s_dist_06 CHAR(24) NOT NULL,
        s_dist_07 CHAR(24) NOT NULL,
        s_dist_08 CHAR(24) NOT NULL,
        s_dist_09 CHAR(24) NOT NULL,
        s_dist_10 CHAR(24) NOT NULL,
        s_data VARCHAR(50) NOT NULL,
        s_ytd DECIMAL(8,0) NOT NULL,
        s_order_cnt INT NOT NULL,
        s_remote_cnt INT NOT NULL,
        PRIMARY KEY (s_w_id, s_i_id))",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_for_each_table() {
        let statements = statements("InnoDB", false);
        for (table, statement) in TABLES.iter().zip(&statements) {
            assert!(statement.starts_with(&format!("CREATE TABLE {table} (")));
            assert!(statement.ends_with(") ENGINE=InnoDB"));
        }
    }

    #[test]
    fn a_table_of_warehouses_says_in_its_key_whose_a_row_is() {
        let tables = of_warehouses();
        assert_eq!(tables.len(), TABLES.len() - 1);
        for (name, column, definition) in tables {
            assert!(definition.contains(&format!(" {column} INT NOT NULL")), "{name}");
            assert!(name == "history" || definition.contains(&format!("PRIMARY KEY ({column}")), "{name}");
        }
    }

    #[test]
    fn foreign_keys_refer_to_primary_keys_by_columns_that_there_are() {
        assert_eq!(statements("InnoDB", true).len(), TABLES.len() + FOREIGN_KEYS.len());
        let definition = |table: &str| definition(table).expect("a table of the specification");
        for key in &FOREIGN_KEYS {
            let parent = definition(key.parent);
            assert!(parent.contains(&format!("PRIMARY KEY ({})", key.referenced.join(", "))), "{}", key.name);
            for column in key.columns {
                assert!(definition(key.child).contains(&format!(" {column} ")), "{}: {column}", key.name);
            }
        }
    }
}
