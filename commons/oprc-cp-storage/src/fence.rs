/// Identifies one term of a lease, so that a store can reject writes of a former holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(crate) name: String,
    pub(crate) term: u64,
}
