//! Who calls the grid.
//!
//! Callers of the port for workloads of the cluster are INTERNAL, others are PUBLIC. A call that comes from
//! a function which this grid called shows a call token, and is PRIVATE.

use crate::{
    Error, Grid, ObjectId,
    call_token::CALL_TOKEN,
    class::{Access, Class},
    invocation::CallOrigin,
};

/// Headers that functions get, too.
pub(crate) const PASSED_ON: [&str; 3] = ["x-correlation-id", "traceparent", "tracestate"];

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) access: Access,
    pub(crate) origin: CallOrigin,
}

impl Caller {
    /// The header of call tokens.
    pub(crate) const TOKENS: &str = CALL_TOKEN;

    /// `access` is that of the port. Call tokens count on the port for workloads of the cluster only:
    /// elsewhere they may have leaked.
    pub(crate) fn recognise(grid: &Grid, access: Access, tokens: &str) -> Result<Self, Error> {
        if access == Access::Public {
            return Ok(Self { access, origin: CallOrigin::default() });
        }
        let (origin, is_own) = grid.tokens.origin(tokens)?;
        Ok(Self { access: if is_own { Access::Private } else { access }, origin })
    }

    /// Fails unless the caller may read and write objects.
    pub(crate) fn permit_data(&self, class: &Class) -> Result<(), Error> {
        class.permit_data(self.access)
    }

    /// Fails unless the caller may write this object, which no call of it has led to.
    pub(crate) fn permit_write(
        &self,
        grid: &Grid,
        collection: Option<&str>,
        id: &ObjectId,
    ) -> Result<(), Error> {
        self.permit_data(&grid.class())?;
        grid.check_reentrancy(collection, id, &self.origin)
    }

    /// Fails for callers outside of the cluster.
    pub(crate) fn require_internal(&self, what: &str) -> Result<(), Error> {
        if self.access == Access::Public {
            let access = Access::Internal.as_str();
            return Err(Error::Forbidden { what: what.to_owned(), access });
        }
        Ok(())
    }
}
