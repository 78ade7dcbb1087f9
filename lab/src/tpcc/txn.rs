//! The five transactions of clause 2, with prepared statements.

use super::random::Source;
use super::{DISTRICTS, Scale};
use mysql::prelude::Queryable;
use mysql::{Conn, Params, Row, Statement, Value};
use std::io::ErrorKind;

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Clause 2.4
    NewOrder,
    /// Clause 2.5
    Payment,
    /// Clause 2.6
    OrderStatus,
    /// Clause 2.7
    Delivery,
    /// Clause 2.8
    StockLevel,
}

/// All kinds with their share of the mix in percent (clause 5.2.3).
pub const MIX: [(Kind, u32); 5] =
    [(Kind::NewOrder, 45), (Kind::Payment, 43), (Kind::OrderStatus, 4), (Kind::Delivery, 4), (Kind::StockLevel, 4)];

impl Kind {
    /// A kind by its share, from a number below 100.
    pub fn of(mut percent: u32) -> Kind {
        for (kind, share) in MIX {
            if percent < share {
                return kind;
            }
            percent -= share;
        }
        Kind::NewOrder
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "New-Order",
            Kind::Payment => "Payment",
            Kind::OrderStatus => "Order-Status",
            Kind::Delivery => "Delivery",
            Kind::StockLevel => "Stock-Level",
        }
    }
}

/// The input of a transaction, drawn once: a repetition after a deadlock has
/// the same.
#[derive(Clone, Debug)]
pub enum Input {
    /// A New-Order.
    NewOrder {
        /// Home warehouse, district, customer.
        place: (u32, u32, u32),
        /// Item, supplying warehouse, quantity; ascending.
        lines: Vec<(u32, u32, u32)>,
    },
    /// A Payment.
    Payment {
        /// Warehouse and district that take the money.
        at: (u32, u32),
        /// Warehouse and district of the customer.
        of: (u32, u32),
        /// Who pays.
        who: Who,
        /// Cents.
        amount: i64,
    },
    /// An Order-Status.
    OrderStatus {
        /// Warehouse and district.
        of: (u32, u32),
        /// Whose last order.
        who: Who,
    },
    /// A Delivery.
    Delivery {
        /// Warehouse.
        warehouse: u32,
        /// Carrier.
        carrier: u32,
    },
    /// A Stock-Level.
    StockLevel {
        /// Warehouse and district.
        at: (u32, u32),
        /// Threshold.
        below: u32,
    },
}

/// How a customer is selected.
#[derive(Clone, Debug)]
pub enum Who {
    /// By number.
    Id(u32),
    /// By last name: the one in the middle, by first name.
    Name(String),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Committed; a New-Order with its order number and lines.
    Committed(Option<Order>),
    /// Rolled back because of an unused item number, as one in a hundred New-Orders must.
    RolledBack,
}

/// An order that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// Warehouse.
    pub warehouse: u32,
    /// District.
    pub district: u32,
    /// Number in the district.
    pub number: u32,
    /// Lines.
    pub lines: u32,
}

impl Input {
    /// Draws the input of a transaction.
    pub fn draw(kind: Kind, scale: Scale, s: &mut Source) -> Input {
        let warehouse = s.uniform(1, scale.warehouses);
        let district = s.uniform(1, DISTRICTS);
        match kind {
            Kind::NewOrder => {
                let count = s.uniform(5, 15);
                let mut lines: Vec<_> = (0..count)
                    .map(|_| {
                        let remote = scale.warehouses > 1 && s.percent(1);
                        let supply = if remote { other(warehouse, scale.warehouses, s) } else { warehouse };
                        (s.item(scale.items), supply, s.uniform(1, 10))
                    })
                    .collect();
                lines.sort_by_key(|&(item, supply, _)| (supply, item));
                if s.percent(1)
                    && let Some(last) = lines.last_mut()
                {
                    last.0 = scale.items + 1;
                }
                Input::NewOrder { place: (warehouse, district, s.customer(scale.customers)), lines }
            }
            Kind::Payment => {
                let of = if scale.warehouses > 1 && s.percent(15) {
                    (other(warehouse, scale.warehouses, s), s.uniform(1, DISTRICTS))
                } else {
                    (warehouse, district)
                };
                let who = Who::draw(scale, s);
                Input::Payment { at: (warehouse, district), of, who, amount: i64::from(s.uniform(100, 500_000)) }
            }
            Kind::OrderStatus => Input::OrderStatus { of: (warehouse, district), who: Who::draw(scale, s) },
            Kind::Delivery => Input::Delivery { warehouse, carrier: s.uniform(1, 10) },
            Kind::StockLevel => Input::StockLevel { at: (warehouse, district), below: s.uniform(10, 20) },
        }
    }
}

impl Who {
    fn draw(scale: Scale, s: &mut Source) -> Who {
        if s.percent(60) { Who::Name(s.last_name(scale.last_names())) } else { Who::Id(s.customer(scale.customers)) }
    }
}

fn other(warehouse: u32, warehouses: u32, s: &mut Source) -> u32 {
    let drawn = s.uniform(1, warehouses - 1);
    if drawn >= warehouse { drawn + 1 } else { drawn }
}

/// All statements of a session.
macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// How many statements a session prepares.
        pub const STATEMENTS: usize = [$($sql),*].len();

        /// A session with its prepared statements.
        pub struct Session {
            conn: Conn,
            $($name: Statement,)*
        }

        impl Session {
            /// Prepares everything.
            pub fn new(mut conn: Conn) -> mysql::Result<Session> {
                $(let $name = conn.prep($sql)?;)*
                Ok(Session { conn, $($name,)* })
            }
        }
    };
}

statements! {
    warehouse_tax: "SELECT w_tax FROM warehouse WHERE w_id = ?";
    district_lock: "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE";
    district_next: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?";
    customer_discount: "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    insert_order: "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
        VALUES (?, ?, ?, ?, NOW(), NULL, ?, ?)";
    insert_new_order: "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)";
    item: "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?";
    stock_lock: "SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07,
        s_dist_08, s_dist_09, s_dist_10 FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE";
    stock_update: "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1,
        s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?";
    insert_line: "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
        ol_quantity, ol_amount, ol_dist_info) VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)";
    warehouse_pay: "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?";
    warehouse_address: "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?";
    district_pay: "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?";
    district_address: "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
        WHERE d_w_id = ? AND d_id = ?";
    customers_by_name: "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first";
    customer_lock: "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit,
        c_credit_lim, c_discount, c_balance, c_since FROM customer
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE";
    customer_data: "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    customer_pay: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?,
        c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    customer_pay_bad: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?,
        c_payment_cnt = c_payment_cnt + 1, c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    insert_history: "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)";
    customer_status: "SELECT c_balance, c_first, c_middle, c_last FROM customer
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    last_order: "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ?
        ORDER BY o_id DESC LIMIT 1";
    lines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    oldest_new_order: "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE";
    delete_new_order: "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?";
    deliver_order: "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?";
    order_customer: "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?";
    deliver_lines: "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    order_amount: "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    customer_deliver: "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    district_orders: "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?";
    low_stock: "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ?
        AND ol_o_id >= ? AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?";
}

impl Session {
    /// Runs a transaction once. After an error the caller rolls back.
    pub fn run(&mut self, input: &Input) -> mysql::Result<Done> {
        self.conn.query_drop("BEGIN")?;
        let order = match input {
            Input::NewOrder { place, lines } => match self.new_order(*place, lines)? {
                Some(order) => Some(order),
                None => {
                    self.rollback()?;
                    return Ok(Done::RolledBack);
                }
            },
            Input::Payment { at, of, who, amount } => {
                self.payment(*at, *of, who, *amount)?;
                None
            }
            Input::OrderStatus { of, who } => {
                self.order_status(*of, who)?;
                None
            }
            Input::Delivery { warehouse, carrier } => {
                self.delivery(*warehouse, *carrier)?;
                None
            }
            Input::StockLevel { at, below } => {
                self.stock_level(*at, *below)?;
                None
            }
        };
        self.conn.query_drop("COMMIT")?;
        Ok(Done::Committed(order))
    }

    /// Rolls back what is open.
    pub fn rollback(&mut self) -> mysql::Result<()> {
        self.conn.query_drop("ROLLBACK")
    }

    /// Nothing when an item does not exist.
    fn new_order(&mut self, (w, d, c): (u32, u32, u32), lines: &[(u32, u32, u32)]) -> mysql::Result<Option<Order>> {
        self.one(|s| &s.warehouse_tax, (w,))?;
        let mut district = self.one(|s| &s.district_lock, (w, d))?;
        let o: u32 = take(&mut district, 0)?;
        self.exec(|s| &s.district_next, (w, d))?;
        self.one(|s| &s.customer_discount, (w, d, c))?;
        let all_local = lines.iter().all(|&(_, supply, _)| supply == w);
        self.exec(|s| &s.insert_order, (o, d, w, c, lines.len(), all_local))?;
        self.exec(|s| &s.insert_new_order, (o, d, w))?;
        for (number, &(i, supply, quantity)) in (1u32..).zip(lines) {
            let Some(mut item) = self.conn.exec_first::<Row, _, _>(&self.item, (i,))? else {
                return Ok(None);
            };
            let price = cents(&take::<Value>(&mut item, 0)?);
            let mut stock = self.one(|s| &s.stock_lock, (supply, i))?;
            let have: i32 = take(&mut stock, 0)?;
            let left = have - quantity as i32;
            let left = if left >= 10 { left } else { left + 91 };
            let info: String = take(&mut stock, 1 + d as usize)?;
            self.exec(|s| &s.stock_update, (left, quantity, u32::from(supply != w), supply, i))?;
            let amount = money(price * i64::from(quantity));
            self.exec(|s| &s.insert_line, (o, d, w, number, i, supply, quantity, amount, info))?;
        }
        Ok(Some(Order { warehouse: w, district: d, number: o, lines: lines.len() as u32 }))
    }

    fn payment(&mut self, (w, d): (u32, u32), (cw, cd): (u32, u32), who: &Who, amount: i64) -> mysql::Result<()> {
        let paid = money(amount);
        self.exec(|s| &s.warehouse_pay, (&paid, w))?;
        let mut warehouse = self.one(|s| &s.warehouse_address, (w,))?;
        self.exec(|s| &s.district_pay, (&paid, w, d))?;
        let mut district = self.one(|s| &s.district_address, (w, d))?;
        let c = self.customer(cw, cd, who)?;
        let mut customer = self.one(|s| &s.customer_lock, (cw, cd, c))?;
        if take::<String>(&mut customer, 9)? == "BC" {
            let mut row = self.one(|s| &s.customer_data, (cw, cd, c))?;
            let mut data = format!("{c} {cd} {cw} {d} {w} {paid}|{}", take::<String>(&mut row, 0)?);
            data.truncate(500);
            self.exec(|s| &s.customer_pay_bad, (&paid, &paid, data, cw, cd, c))?;
        } else {
            self.exec(|s| &s.customer_pay, (&paid, &paid, cw, cd, c))?;
        }
        let note = format!("{}    {}", take::<String>(&mut warehouse, 0)?, take::<String>(&mut district, 0)?);
        self.exec(|s| &s.insert_history, (c, cd, cw, d, w, paid, note))
    }

    fn order_status(&mut self, (w, d): (u32, u32), who: &Who) -> mysql::Result<()> {
        let c = self.customer(w, d, who)?;
        self.one(|s| &s.customer_status, (w, d, c))?;
        if let Some(mut order) = self.conn.exec_first::<Row, _, _>(&self.last_order, (w, d, c))? {
            let o: u32 = take(&mut order, 0)?;
            let _: Vec<Row> = self.conn.exec(&self.lines, (w, d, o))?;
        }
        Ok(())
    }

    fn delivery(&mut self, w: u32, carrier: u32) -> mysql::Result<()> {
        for d in 1..=DISTRICTS {
            let oldest: Option<u32> = self.conn.exec_first(&self.oldest_new_order, (w, d))?;
            // Nothing to deliver: the district is skipped, clause 2.7.4.2.
            let Some(o) = oldest else { continue };
            self.exec(|s| &s.delete_new_order, (w, d, o))?;
            // Written before it is read: this may be newer than the transaction's snapshot.
            self.exec(|s| &s.deliver_order, (carrier, w, d, o))?;
            let mut order = self.one(|s| &s.order_customer, (w, d, o))?;
            let c: u32 = take(&mut order, 0)?;
            self.exec(|s| &s.deliver_lines, (w, d, o))?;
            let mut sum = self.one(|s| &s.order_amount, (w, d, o))?;
            let amount = money(cents(&take::<Value>(&mut sum, 0)?));
            self.exec(|s| &s.customer_deliver, (amount, w, d, c))?;
        }
        Ok(())
    }

    fn stock_level(&mut self, (w, d): (u32, u32), below: u32) -> mysql::Result<()> {
        let mut district = self.one(|s| &s.district_orders, (w, d))?;
        let next: u32 = take(&mut district, 0)?;
        self.one(|s| &s.low_stock, (w, d, next, next.saturating_sub(20), w, below))?;
        Ok(())
    }

    /// The number of a customer.
    fn customer(&mut self, w: u32, d: u32, who: &Who) -> mysql::Result<u32> {
        match who {
            Who::Id(c) => Ok(*c),
            Who::Name(name) => {
                let ids: Vec<u32> = self.conn.exec(&self.customers_by_name, (w, d, name))?;
                // Position n/2 rounded up, from 1.
                let middle = ids.len().div_ceil(2).saturating_sub(1);
                ids.get(middle).copied().ok_or_else(|| missing(&format!("customer {name} of {w}/{d}")))
            }
        }
    }

    /// A row that must be there.
    fn one(&mut self, statement: fn(&Session) -> &Statement, params: impl Into<Params>) -> mysql::Result<Row> {
        let statement = statement(self).clone();
        let row = self.conn.exec_first(&statement, params)?;
        row.ok_or_else(|| missing(&format!("a row of statement {}", statement.id())))
    }

    fn exec(&mut self, statement: fn(&Session) -> &Statement, params: impl Into<Params>) -> mysql::Result<()> {
        let statement = statement(self).clone();
        self.conn.exec_drop(&statement, params)
    }
}

/// A row that the data guarantee is not there: never to be repeated or ignored.
fn missing(what: &str) -> mysql::Error {
    mysql::Error::IoError(std::io::Error::new(ErrorKind::InvalidData, format!("{what} is missing")))
}

fn take<T: mysql::prelude::FromValue>(row: &mut Row, column: usize) -> mysql::Result<T> {
    match row.take_opt(column) {
        Some(Ok(value)) => Ok(value),
        _ => Err(missing(&format!("a value of column {column}"))),
    }
}

/// Cents of a decimal with two digits behind the point; 0 for NULL.
pub fn cents(value: &Value) -> i64 {
    match value {
        Value::Bytes(text) => parse_cents(text),
        Value::Int(n) => n * 100,
        Value::UInt(n) => *n as i64 * 100,
        _ => 0,
    }
}

/// The same from text.
pub fn parse_cents(text: &[u8]) -> i64 {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let mut whole = digits.split(|&b| b == b'.');
    let number = |digits: &[u8]| digits.iter().fold(0i64, |n, b| n * 10 + i64::from(b - b'0'));
    let units = whole.next().map_or(0, number);
    let fraction = whole.next().unwrap_or_default();
    let fraction = fraction.iter().copied().chain([b'0', b'0']).take(2).collect::<Vec<_>>();
    let cents = units * 100 + number(&fraction);
    if negative { -cents } else { cents }
}

/// Cents as a decimal.
fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_standard_one() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u32>(), 100);
        assert_eq!(Kind::of(0), Kind::NewOrder);
        assert_eq!(Kind::of(44), Kind::NewOrder);
        assert_eq!(Kind::of(45), Kind::Payment);
        assert_eq!(Kind::of(99), Kind::StockLevel);
    }

    #[test]
    fn inputs_follow_the_specification() {
        let (scale, mut s) = (Scale::full(5), Source::for_run(3));
        let (mut lines_seen, mut remote, mut unused) = (0.0, 0.0, 0.0);
        let n = 20_000;
        for _ in 0..n {
            let Input::NewOrder { place, lines } = Input::draw(Kind::NewOrder, scale, &mut s) else { panic!() };
            assert!((5..=15).contains(&lines.len()));
            lines_seen += lines.len() as f64;
            remote += lines.iter().filter(|line| line.1 != place.0).count() as f64;
            unused += f64::from(lines.iter().any(|line| line.0 > scale.items));
        }
        assert!((remote / lines_seen - 0.01).abs() < 0.002);
        assert!((unused / f64::from(n) - 0.01).abs() < 0.004);
        let (mut away, mut named) = (0, 0);
        for _ in 0..n {
            let Input::Payment { at, of, who, amount } = Input::draw(Kind::Payment, scale, &mut s) else { panic!() };
            assert!((100..=500_000).contains(&amount));
            away += u32::from(at.0 != of.0);
            named += u32::from(matches!(who, Who::Name(_)));
        }
        assert!((f64::from(away) / f64::from(n) - 0.15).abs() < 0.02);
        assert!((f64::from(named) / f64::from(n) - 0.6).abs() < 0.02);
    }

    #[test]
    fn remote_is_never_home() {
        let mut s = Source::for_run(1);
        assert!((0..1000).all(|_| other(2, 3, &mut s) != 2));
        assert_eq!(other(1, 2, &mut s), 2);
        assert_eq!(other(2, 2, &mut s), 1);
    }

    #[test]
    fn money_both_ways() {
        for cents in [0, 5, 99, 100, -1, -250, 123_456] {
            assert_eq!(parse_cents(money(cents).as_bytes()), cents);
        }
        assert_eq!(parse_cents(b"7"), 700);
        assert_eq!(parse_cents(b"7.5"), 750);
    }
}
