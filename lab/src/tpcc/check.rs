//! The consistency conditions of clause 3.3.2, and three more.
//!
//! | condition | what must hold |
//! |---|---|
//! | 1 | W_YTD = sum(D_YTD) |
//! | 2 | D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID) |
//! | 3 | the NO_O_ID of a district have no gap |
//! | 4 | sum(O_OL_CNT) = number of order lines of a district |
//! | 5 | O_CARRIER_ID is null exactly for orders that have a NEW-ORDER row |
//! | 6 | O_OL_CNT = number of order lines of an order |
//! | 7 | OL_DELIVERY_D is null exactly where the order has no carrier |
//! | 8 | W_YTD = sum(H_AMOUNT) |
//! | 9 | D_YTD = sum(H_AMOUNT) |
//! | 10 | C_BALANCE = sum(OL_AMOUNT, delivered) - sum(H_AMOUNT) |
//! | 11 | orders - new orders of a district = 2,100 + sum(C_DELIVERY_CNT): the specification's 2,100 holds before the first Delivery |
//! | 12 | C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT, delivered) |
//! | 13 | the secondary indexes hold the same rows as the tables |
//! | 14 | acknowledged orders are there, with all lines (where the caller knows some) |
//! | 15 | all foreign keys are declared, and each row has the row that it refers to (where they were asked for) |
//!
//! Condition 15 is read without the keys' help: for each key the distinct values of the children, and whether the parent has them.

use super::txn::{Order, cents};
use super::{DATABASE, DISTRICTS, Scale, schema};
use crate::findings::{Findings, each, in_parts};
use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use mysql::{Conn, Value};
use std::collections::HashMap;

/// Checks all warehouses; `acknowledged` are orders that must be there, `foreign_keys` says whether the tables have them.
pub fn check(
    instance: &Instance,
    scale: Scale,
    foreign_keys: bool,
    acknowledged: &[Order],
    threads: u32,
) -> Result<Findings> {
    let mut orders: HashMap<u32, Vec<Order>> = HashMap::new();
    for order in acknowledged {
        orders.entry(order.warehouse).or_default().push(*order);
    }
    let open = || Ok(instance.connect(Some(DATABASE))?);
    let mut conn = open()?;
    let payments = Payments::read(&mut conn)?;
    let mut findings = Findings::of_rows(payments.rows);
    indexes(&mut conn, &mut findings)?;
    if foreign_keys {
        references(&mut conn, &mut findings)?;
    }
    drop(conn);
    findings.merge(in_parts(u64::from(scale.warehouses), threads, open, |conn, part| {
        let w = part as u32 + 1;
        let mine = orders.get(&w).map_or(&[][..], Vec::as_slice);
        Ok(Warehouse::read(conn, w, scale)?.check(scale, &payments, mine))
    })?);
    Ok(findings)
}

/// Sums over HISTORY, which has no index.
#[derive(Default)]
struct Payments {
    by_district: HashMap<(u32, u32), i64>,
    by_customer: HashMap<(u32, u32, u32), i64>,
    rows: u64,
}

impl Payments {
    fn read(conn: &mut Conn) -> Result<Payments> {
        let mut sums = Payments::default();
        let query = "SELECT h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount FROM history".to_string();
        sums.rows = each(conn, query, |(w, d, cw, cd, c, amount): (u32, u32, u32, u32, u32, Value)| {
            let amount = cents(&amount);
            *sums.by_district.entry((w, d)).or_default() += amount;
            *sums.by_customer.entry((cw, cd, c)).or_default() += amount;
        })?;
        Ok(sums)
    }
}

/// Condition 13.
fn indexes(conn: &mut Conn, findings: &mut Findings) -> Result<()> {
    let pairs = [
        ("customer", "customer_by_name", "c_w_id, c_d_id, c_last, c_first, c_id"),
        ("orders", "orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id"),
    ];
    for (table, index, columns) in pairs {
        let mut sum = |index: &str| -> Result<(u64, String)> {
            let query = format!(
                "SELECT COUNT(*), CAST(COALESCE(SUM(CRC32(CONCAT_WS(',', {columns}))), 0) AS CHAR)
                 FROM {table} FORCE INDEX ({index})"
            );
            conn.query_first(&query)
                .with_context(|| format!("this query failed: {query}"))?
                .context("an aggregate has a row")
        };
        let (by_table, by_index) = (sum("PRIMARY")?, sum(index)?);
        findings.rows += by_table.0 + by_index.0;
        findings.expect(13, by_table == by_index, || {
            format!(
                "{table} has {} rows, checksum {}; its index {index} has {}, {}",
                by_table.0, by_table.1, by_index.0, by_index.1
            )
        });
    }
    Ok(())
}

/// Condition 15.
fn references(conn: &mut Conn, findings: &mut Findings) -> Result<()> {
    let declared: Vec<String> = conn.query(format!(
        "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = '{DATABASE}'"
    ))?;
    for key in &schema::FOREIGN_KEYS {
        findings.expect(15, declared.iter().any(|name| name == key.name), || {
            format!("{} has no foreign key {}", key.child, key.name)
        });
        let on: Vec<String> = key
            .referenced
            .iter()
            .zip(key.columns)
            .map(|(parent, child)| format!("parent.{parent} = child.{child}"))
            .collect();
        let query = format!(
            "SELECT COUNT(*), COALESCE(SUM(parent.{} IS NULL), 0) FROM (SELECT DISTINCT {} FROM {}) AS child
             LEFT JOIN {} AS parent ON {}",
            key.referenced[0],
            key.columns.join(", "),
            key.child,
            key.parent,
            on.join(" AND ")
        );
        let (values, orphans): (u64, u64) = conn
            .query_first(&query)
            .with_context(|| format!("this query failed: {query}"))?
            .context("an aggregate has a row")?;
        findings.rows += values;
        findings.expect(15, orphans == 0, || {
            format!("{}: {orphans} of {values} values refer to no row of {}", key.name, key.parent)
        });
    }
    Ok(())
}

/// What is read of an order.
#[derive(Clone, Debug, Default)]
struct OrderState {
    there: bool,
    customer: u32,
    delivered: bool,
    lines: u32,
    is_new: bool,
    lines_found: u32,
    lines_delivered: u32,
}

/// What is read of a customer.
#[derive(Clone, Debug, Default)]
struct CustomerState {
    there: bool,
    balance: i64,
    ytd_payment: i64,
    deliveries: u32,
    /// Sum over delivered lines.
    delivered: i64,
}

/// What is read of a district.
#[derive(Clone, Debug, Default)]
struct District {
    ytd: i64,
    next: u32,
    /// By order number.
    orders: Vec<OrderState>,
    /// By customer number.
    customers: Vec<CustomerState>,
    new_orders: Vec<u32>,
    lines: u64,
    /// Lines without an order.
    stray_lines: u64,
}

/// All of a warehouse, but stock.
struct Warehouse {
    id: u32,
    ytd: Option<i64>,
    /// By district number; the first is not used.
    districts: Vec<District>,
    rows: u64,
    wrong_district: u64,
}

impl Warehouse {
    fn read(conn: &mut Conn, w: u32, scale: Scale) -> Result<Warehouse> {
        let empty =
            District { customers: vec![CustomerState::default(); scale.customers as usize + 1], ..District::default() };
        let mut this =
            Warehouse { id: w, ytd: None, districts: vec![empty; DISTRICTS as usize + 1], rows: 0, wrong_district: 0 };
        let mut rows = each(conn, format!("SELECT w_ytd FROM warehouse WHERE w_id = {w}"), |(ytd,): (Value,)| {
            this.ytd = Some(cents(&ytd));
        })?;
        let query = format!("SELECT d_id, d_ytd, d_next_o_id FROM district WHERE d_w_id = {w}");
        rows += each(conn, query, |(d, ytd, next): (u32, Value, u32)| {
            let district = this.district(d);
            district.ytd = cents(&ytd);
            district.next = next;
        })?;
        let query = format!(
            "SELECT c_d_id, c_id, c_balance, c_ytd_payment, c_delivery_cnt FROM customer FORCE INDEX (PRIMARY) WHERE c_w_id = {w}"
        );
        rows += each(conn, query, |(d, c, balance, ytd, deliveries): (u32, u32, Value, Value, u32)| {
            if let Some(customer) = this.district(d).customers.get_mut(c as usize) {
                customer.there = true;
                customer.balance = cents(&balance);
                customer.ytd_payment = cents(&ytd);
                customer.deliveries = deliveries;
            }
        })?;
        let query = format!(
            "SELECT o_d_id, o_id, o_c_id, o_carrier_id IS NOT NULL, o_ol_cnt FROM orders FORCE INDEX (PRIMARY) WHERE o_w_id = {w}"
        );
        rows += each(conn, query, |(d, o, c, delivered, lines): (u32, u32, u32, bool, u32)| {
            let orders = &mut this.district(d).orders;
            if orders.len() <= o as usize {
                orders.resize(o as usize + 1, OrderState::default());
            }
            orders[o as usize] = OrderState { there: true, customer: c, delivered, lines, ..OrderState::default() };
        })?;
        let query = format!("SELECT no_d_id, no_o_id FROM new_order WHERE no_w_id = {w}");
        rows += each(conn, query, |(d, o): (u32, u32)| {
            let district = this.district(d);
            district.new_orders.push(o);
            if let Some(order) = district.orders.get_mut(o as usize) {
                order.is_new = true;
            }
        })?;
        let query = format!(
            "SELECT ol_d_id, ol_o_id, ol_amount, ol_delivery_d IS NOT NULL FROM order_line WHERE ol_w_id = {w}"
        );
        rows += each(conn, query, |(d, o, amount, delivered): (u32, u32, Value, bool)| {
            let district = this.district(d);
            district.lines += 1;
            match district.orders.get_mut(o as usize).filter(|order| order.there) {
                None => district.stray_lines += 1,
                Some(order) => {
                    order.lines_found += 1;
                    if delivered {
                        order.lines_delivered += 1;
                        if let Some(customer) = district.customers.get_mut(order.customer as usize) {
                            customer.delivered += cents(&amount);
                        }
                    }
                }
            }
        })?;
        this.rows = rows;
        Ok(this)
    }

    /// A district by number; wrong numbers go where nobody looks but the check.
    fn district(&mut self, d: u32) -> &mut District {
        if d == 0 || d > DISTRICTS {
            self.wrong_district += 1;
            return &mut self.districts[0];
        }
        &mut self.districts[d as usize]
    }

    fn check(&self, scale: Scale, payments: &Payments, acknowledged: &[Order]) -> Findings {
        let mut found = Findings::of_rows(self.rows);
        let w = self.id;
        let ytd = self.ytd.unwrap_or(i64::MIN);
        found.expect(1, self.wrong_district == 0, || format!("warehouse {w}: rows of districts that do not exist"));
        let districts = self.districts[1..].iter();
        let sum: i64 = districts.clone().map(|district| district.ytd).sum();
        found.expect(1, ytd == sum, || format!("warehouse {w}: W_YTD {ytd}, sum of D_YTD {sum} (cents)"));
        let history = |d: u32| payments.by_district.get(&(w, d)).copied().unwrap_or(0);
        let sum: i64 = (1..=DISTRICTS).map(history).sum();
        found.expect(8, ytd == sum, || format!("warehouse {w}: W_YTD {ytd}, sum of H_AMOUNT {sum} (cents)"));
        for (d, district) in (1u32..).zip(districts) {
            found.expect(9, district.ytd == history(d), || {
                format!("district {w}/{d}: D_YTD {}, sum of H_AMOUNT {} (cents)", district.ytd, history(d))
            });
            district.check(w, d, scale, &mut found);
            for (c, customer) in (0u32..).zip(&district.customers).skip(1) {
                let paid = payments.by_customer.get(&(w, d, c)).copied().unwrap_or(0);
                customer.check(&format!("customer {w}/{d}/{c}"), paid, &mut found);
            }
        }
        for order in acknowledged {
            let state = self.districts.get(order.district as usize).and_then(|d| d.orders.get(order.number as usize));
            let holds = state.is_some_and(|state| state.there && state.lines_found == order.lines);
            found.expect(14, holds, || format!("the acknowledged {order:?} is not there in full: {state:?}"));
        }
        found
    }
}

impl District {
    fn check(&self, w: u32, d: u32, scale: Scale, found: &mut Findings) {
        let place = format!("district {w}/{d}");
        let last = self.orders.iter().rposition(|order| order.there).unwrap_or(0) as u32;
        found.expect(2, self.next == last + 1, || format!("{place}: D_NEXT_O_ID {}, max(O_ID) {last}", self.next));
        if let (Some(&low), Some(&high)) = (self.new_orders.iter().min(), self.new_orders.iter().max()) {
            found.expect(2, high == last, || format!("{place}: max(NO_O_ID) {high}, max(O_ID) {last}"));
            let count = self.new_orders.len() as u32;
            found.expect(3, high + 1 - low == count, || format!("{place}: {count} new orders from {low} to {high}"));
        }
        let lines: u64 = self.orders.iter().map(|order| u64::from(order.lines)).sum();
        found.expect(4, lines == self.lines && self.stray_lines == 0, || {
            format!(
                "{place}: sum(O_OL_CNT) {lines}, order lines {}, of these without order {}",
                self.lines, self.stray_lines
            )
        });
        let present = self.orders.iter().filter(|order| order.there).count();
        found.expect(2, present as u32 == last, || format!("{place}: {present} orders, the last is {last}"));
        for (o, order) in self.orders.iter().enumerate().filter(|(_, order)| order.there) {
            found.expect(5, order.delivered != order.is_new, || {
                format!("order {w}/{d}/{o}: has a carrier: {}, is a new order: {}", order.delivered, order.is_new)
            });
            found.expect(6, order.lines == order.lines_found, || {
                format!("order {w}/{d}/{o}: O_OL_CNT {}, lines {}", order.lines, order.lines_found)
            });
            let expected = if order.delivered { order.lines_found } else { 0 };
            found.expect(7, order.lines_delivered == expected, || {
                format!(
                    "order {w}/{d}/{o}: has a carrier: {}, delivered lines {}",
                    order.delivered, order.lines_delivered
                )
            });
        }
        let deliveries: u32 = self.customers.iter().map(|customer| customer.deliveries).sum();
        let delivered = present as i64 - self.new_orders.len() as i64;
        found.expect(11, delivered == i64::from(scale.delivered() + deliveries), || {
            format!("{place}: {present} orders, {} new, {deliveries} deliveries since the load", self.new_orders.len())
        });
    }
}

impl CustomerState {
    fn check(&self, name: &str, paid: i64, found: &mut Findings) {
        found.expect(10, self.there && self.balance == self.delivered - paid, || {
            format!(
                "{name}: there {}, C_BALANCE {}, delivered {}, paid {paid} (cents)",
                self.there, self.balance, self.delivered
            )
        });
        found.expect(12, self.balance + self.ytd_payment == self.delivered, || {
            format!(
                "{name}: C_BALANCE {}, C_YTD_PAYMENT {}, delivered {} (cents)",
                self.balance, self.ytd_payment, self.delivered
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> Scale {
        Scale { warehouses: 1, customers: 2, items: 10 }
    }

    /// Two customers, two orders in each district: one delivered, one new.
    fn sound() -> (Warehouse, Payments) {
        let order = |customer, delivered: bool| OrderState {
            there: true,
            customer,
            delivered,
            lines: 3,
            is_new: !delivered,
            lines_found: 3,
            lines_delivered: if delivered { 3 } else { 0 },
        };
        let customer = || CustomerState { there: true, balance: -1000, ytd_payment: 1000, ..CustomerState::default() };
        let district = District {
            ytd: 2000,
            next: 3,
            orders: vec![OrderState::default(), order(1, true), order(2, false)],
            customers: vec![CustomerState::default(), customer(), customer()],
            new_orders: vec![2],
            lines: 6,
            stray_lines: 0,
        };
        let mut districts = vec![district; 11];
        districts[0] = District::default();
        let mut payments = Payments::default();
        for d in 1..=10 {
            payments.by_district.insert((1, d), 2000);
            payments.by_customer.insert((1, d, 1), 1000);
            payments.by_customer.insert((1, d, 2), 1000);
        }
        (Warehouse { id: 1, ytd: Some(20_000), districts, rows: 0, wrong_district: 0 }, payments)
    }

    fn violated(change: impl FnOnce(&mut Warehouse)) -> Vec<usize> {
        let (mut warehouse, payments) = sound();
        change(&mut warehouse);
        let order = Order { warehouse: 1, district: 2, number: 2, lines: 3 };
        warehouse.check(scale(), &payments, &[order]).violated()
    }

    #[test]
    fn sound_data_are_found_sound() {
        assert_eq!(scale().delivered(), 1);
        assert!(violated(|_| {}).is_empty());
    }

    #[test]
    fn each_fault_is_found() {
        assert_eq!(violated(|w| w.ytd = Some(1)), [1, 8]);
        assert_eq!(violated(|w| w.districts[1].ytd += 5), [1, 9]);
        assert_eq!(violated(|w| w.districts[3].next = 9), [2]);
        assert_eq!(violated(|w| w.districts[3].new_orders = vec![0, 2]), [3, 11]);
        assert_eq!(violated(|w| w.districts[3].lines = 7), [4]);
        assert_eq!(violated(|w| w.districts[3].orders[1].is_new = true), [5]);
        assert_eq!(violated(|w| w.districts[3].orders[1].lines_delivered = 2), [7]);
        assert_eq!(violated(|w| w.districts[3].customers[1].balance += 1), [10, 12]);
        assert_eq!(violated(|w| w.districts[3].customers[1].deliveries = 1), [11]);
        assert_eq!(violated(|w| w.districts[2].orders[2].lines_found = 2), [6, 14]);
    }
}
