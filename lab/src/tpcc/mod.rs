//! TPC-C, revision 5.11: an order-entry system with five transactions.
//!
//! Data, transactions and mix are the specification's. What differs is what the
//! field leaves out when it measures an engine rather than a business: no think
//! and keying times, no terminals bound to a warehouse (each transaction draws
//! its home warehouse), Delivery runs at once instead of through a queue, and a
//! New-Order touches its items in ascending order so that deadlocks stay rare.

pub mod aged;
pub mod bench;
pub mod check;
pub mod drive;
pub mod load;
pub mod random;
pub mod schema;
pub mod txn;
mod verdict;

use serde::{Deserialize, Serialize};

/// The database of the tables.
pub const DATABASE: &str = "tpcc";
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

/// Cardinalities of clause 4.3.3. Districts are always ten a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Customers of a district, and orders it begins with.
    pub customers: u32,
    /// Items, each in stock in each warehouse.
    pub items: u32,
}

impl Scale {
    /// The specification's.
    pub fn full(warehouses: u32) -> Scale {
        Scale { warehouses, customers: 3000, items: 100_000 }
    }

    /// A tenth of it in every dimension, for tests of correctness.
    pub fn small(warehouses: u32) -> Scale {
        Scale { warehouses, customers: 300, items: 10_000 }
    }

    /// The first order of a district that is not delivered at the beginning.
    pub fn first_new_order(&self) -> u32 {
        self.customers * 7 / 10 + 1
    }

    /// Delivered orders of a district at the beginning: the 2,100 of condition 11.
    pub fn delivered(&self) -> u32 {
        self.first_new_order() - 1
    }

    /// How many different last names there are.
    pub fn last_names(&self) -> u32 {
        self.customers.min(1000)
    }

    /// Bytes of the rows alone, by the sizes of clause 1.2.1: what "the data" is
    /// when a cache is sized in proportion to it, for all engines alike.
    pub fn raw_bytes(&self) -> u64 {
        let customers = u64::from(DISTRICTS * self.customers);
        let items = u64::from(self.items);
        let per_warehouse =
            89 + u64::from(DISTRICTS) * 95 + customers * (655 + 46 + 24 + 8 * 3 / 10 + 540) + items * 306;
        u64::from(self.warehouses) * per_warehouse + items * 82
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_s_numbers() {
        let scale = Scale::full(1);
        assert_eq!(scale.first_new_order(), 2101);
        assert_eq!(scale.delivered(), 2100);
        assert_eq!(scale.last_names(), 1000);
        let mib = scale.raw_bytes() >> 20;
        assert!((60..90).contains(&mib), "{mib}");
    }
}
