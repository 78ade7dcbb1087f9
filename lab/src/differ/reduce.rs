//! Shortening a list that has a property: pieces are left out, large ones first, as long as the property stays (delta
//! debugging; Zeller and Hildebrandt, 2002).

/// The shortest list found for which `still` says yes; `items` itself is known to have the property. `still` is not asked
/// about the empty list.
pub fn reduce<T: Clone>(mut items: Vec<T>, mut still: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut piece = items.len().div_ceil(2);
    while piece > 0 {
        let mut shorter = false;
        let mut at = 0;
        while at < items.len() {
            let end = (at + piece).min(items.len());
            let rest: Vec<T> = items[..at].iter().chain(&items[end..]).cloned().collect();
            if !rest.is_empty() && still(&rest) {
                items = rest;
                shorter = true;
            } else {
                at = end;
            }
        }
        if piece > 1 || !shorter {
            piece /= 2;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::reduce;

    #[test]
    fn what_is_needed_stays_and_nothing_else() {
        let items: Vec<u32> = (0..100).collect();
        let needed = [3, 4, 77];
        let shortest = reduce(items, |list| needed.iter().all(|n| list.contains(n)));
        assert_eq!(shortest, needed);
    }

    #[test]
    fn a_list_of_which_all_is_needed_stays() {
        assert_eq!(reduce(vec![1, 2, 3], |list| list.len() == 3), [1, 2, 3]);
    }
}
