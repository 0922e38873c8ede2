//! Macros: methods that call other methods, step by step.
//!
//! A run takes no turn of its object: its steps do, each with a transaction of its own. The progress is stored,
//! and each step has an idempotency key, so that a run which is continued after a crash repeats no change.

mod run;

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use oprc_cp_storage::{Check, Error as StoreError, Transaction};
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

pub(crate) use self::run::RunRecord;
use self::run::{Run, run_id};
use crate::{
    Error, Grid, ObjectId,
    class::{Access, Class, MacroSpec},
    grid::now,
    invocation::{CallOrigin, Invocation, Outcome},
    method_call::{check_arguments, check_condition, deadline, wall_clock},
    once::Once,
    other_grid::OtherGrid,
    record::{PERIOD, RUNS, decode, period, run_key},
};

/// Runs that are continued at once.
const MAX_CONTINUED: usize = 16;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Runs that are read at once.
const PAGE: usize = 100;

type Invoked<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + 'a>>;

impl Grid {
    /// Calls a method or macro of an object on this node.
    pub(crate) async fn invoke_locally(&self, call: &Invocation) -> Result<Outcome, Error> {
        let class = self.class();
        match class.macro_spec(&call.method, call.caller)? {
            Some(spec) => self.run_macro(&class, spec, call).await,
            None => {
                let method = class.method(&call.method, call.caller)?;
                self.call_method(&class, method, call).await
            }
        }
    }

    /// A step may be a macro, too.
    fn invoke_step<'a>(&'a self, call: &'a Invocation) -> Invoked<'a> {
        Box::pin(self.invoke(call))
    }

    async fn run_macro(
        &self,
        class: &Class,
        spec: &MacroSpec,
        call: &Invocation,
    ) -> Result<Outcome, Error> {
        check_arguments(&call.args)?;
        let key = Self::key(class, call.collection.as_deref(), &call.id)?;
        let once =
            call.idempotency_key.as_deref().map(|it| Once::new(call, &key, it)).transpose()?;
        let id = run_id(&key, call.idempotency_key.as_deref());
        let _active = self.active_runs.claim(&id).ok_or(Error::Running)?;
        if let Some(once) = &once {
            if let Some(outcome) = self.earlier(once).await? {
                return Ok(outcome);
            }
            self.results.check()?;
        }
        let deadline = wall_clock(deadline(call, spec.timeout()));
        let marker = format!("macro/{key}/{}", call.method);
        let origin = call.origin.extended(&marker, deadline)?;
        let mut run = match self.earlier_run(&id, call).await? {
            Some(mut earlier) => {
                (earlier.record.deadline, earlier.record.failure) = (deadline, None);
                // It must not be forgotten while it runs, and is resumed after a crash.
                self.save_run(&mut earlier).await?;
                earlier
            }
            None => self.begin_run(class, spec, call, id, &origin).await?,
        };
        match self.drive(class, &mut run, call).await {
            Ok(()) => {
                let result = self.finish_run(&run, once.as_ref()).await?;
                Ok(Outcome { result, version: None, repeated: false, triggers_pending: false })
            }
            Err(error) => {
                self.fail_run(run, &error).await?;
                Err(error)
            }
        }
    }

    /// A run with the same idempotency key that failed, or that a crash interrupted.
    async fn earlier_run(&self, id: &str, call: &Invocation) -> Result<Option<Run>, Error> {
        if call.idempotency_key.is_none() {
            return Ok(None);
        }
        let Some(run) = self.read_run(id).await? else { return Ok(None) };
        if run.record.name != call.method || run.record.args != call.args {
            return Err(Error::IdempotencyKeyReused);
        }
        Ok(Some(run))
    }

    async fn read_run(&self, id: &str) -> Result<Option<Run>, Error> {
        let key = run_key(id);
        let Some(entry) = self.store().get(&key).await? else { return Ok(None) };
        let record = decode(&key, &entry.value)?;
        Ok(Some(Run { id: id.to_owned(), version: entry.version, record }))
    }

    async fn begin_run(
        &self,
        class: &Class,
        spec: &MacroSpec,
        call: &Invocation,
        id: String,
        origin: &CallOrigin,
    ) -> Result<Run, Error> {
        let found = self.read(class, call.collection.as_deref(), &call.id).await?;
        call.expected.check(found.version())?;
        let state = found.state(class)?;
        check_condition(spec.condition.as_ref(), call, &found, &state)?;
        let mut record = RunRecord {
            name: call.method.clone(),
            collection: found.collection.clone(),
            object: call.id.to_string(),
            args: call.args.clone(),
            flow: spec.flow.clone(),
            results: BTreeMap::new(),
            last: Value::Null,
            next: 0,
            call: None,
            depth: origin.depth,
            chain: origin.chain.clone(),
            deadline: origin.expires.unwrap_or_default(),
            idempotency_key: call.idempotency_key.clone(),
            failure: None,
            at: now(),
        };
        let step = record.step_name();
        record.resolve(class, &state).map_err(|error| failed_step(step, error))?;
        let key = run_key(&id);
        let transaction = Transaction::new().check(&key, Check::Absent).put(&key, record.encode()?);
        let version = self.store().commit(transaction).await.map_err(run_error)?;
        Ok(Run { id, version, record })
    }

    /// Executes the remaining steps. Stops at the first that fails; then the run can be continued.
    async fn drive(&self, class: &Class, run: &mut Run, call: &Invocation) -> Result<(), Error> {
        while run.record.step().is_some() {
            let name = run.record.step_name();
            let executed = async {
                if run.record.call.is_none() {
                    self.resolve_step(class, run).await?;
                    self.save_run(run).await?;
                }
                self.execute_step(run, call).await
            };
            let result = executed.await.map_err(|error| failed_step(name, error))?;
            run.record.add_result(result);
        }
        Ok(())
    }

    async fn resolve_step(&self, class: &Class, run: &mut Run) -> Result<(), Error> {
        let id = ObjectId::parse(&run.record.object)?;
        let found = self.read(class, Some(&run.record.collection), &id).await?;
        // A step may have deleted the object.
        let state = found.state(class).map(std::borrow::Cow::into_owned).unwrap_or_default();
        run.record.resolve(class, &state)
    }

    async fn execute_step(&self, run: &Run, call: &Invocation) -> Result<Value, Error> {
        let record = &run.record;
        let (Some(step), Some(step_call)) = (record.step(), &record.call) else {
            return Err(Error::Corrupt(format!("the run {:?} has no next step", run.id)));
        };
        let left = u64::try_from(record.deadline - now()).unwrap_or_default();
        if left == 0 {
            let spec = self.class().macros.get(&record.name).map(MacroSpec::timeout);
            let limit = spec.unwrap_or_default().as_millis();
            return Err(Error::DeadlineExceeded(u64::try_from(limit).unwrap_or(u64::MAX)));
        }
        let id = ObjectId::parse(&step_call.object)?;
        let mut next = Invocation::new(id, &step.method, step_call.args.clone(), Access::Private);
        next.collection.clone_from(&step_call.collection);
        next.idempotency_key = Some(format!("{}-{}", run.id, record.next));
        next.origin = record.invocation()?.origin;
        next.origin.foreign.clone_from(&call.origin.foreign);
        next.headers.clone_from(&call.headers);
        match &step_call.remote {
            None => self.invoke_step(&next).await.map(|it| it.result),
            Some((url, class)) => {
                let grid = OtherGrid { client: &self.client, url, class };
                let tokens = self.tokens.header(&next.origin);
                grid.invoke(&next, &tokens, Duration::from_millis(left)).await
            }
        }
    }

    async fn save_run(&self, run: &mut Run) -> Result<(), Error> {
        run.record.at = now();
        let key = run_key(&run.id);
        let transaction = Transaction::new()
            .check(&key, Check::Version(run.version))
            .put(&key, run.record.encode()?);
        run.version = self.store().commit(transaction).await.map_err(run_error)?;
        Ok(())
    }

    /// The result is kept for the idempotency key.
    async fn finish_run(&self, run: &Run, once: Option<&Once>) -> Result<Value, Error> {
        let result = run.record.output();
        let key = run_key(&run.id);
        let transaction = Transaction::new().check(&key, Check::Version(run.version)).delete(&key);
        let (transaction, bytes) = match once {
            Some(once) => once.record(transaction, &result)?,
            None => (transaction, 0),
        };
        self.store().commit(transaction).await.map_err(run_error)?;
        if once.is_some() {
            self.results.add(period(now()), bytes);
        }
        Ok(result)
    }

    /// A run with an idempotency key is kept, so that a repeated call continues it.
    async fn fail_run(&self, mut run: Run, error: &Error) -> Result<(), Error> {
        let record = &mut run.record;
        tracing::debug!(run = run.id, name = record.name, %error, "macro run failed");
        if record.idempotency_key.is_some() {
            record.failure = Some(error.to_string());
            return match self.save_run(&mut run).await {
                // The last record that could be stored is kept.
                Err(Error::TooLarge { .. }) => Ok(()),
                saved => saved,
            };
        }
        let key = run_key(&run.id);
        let transaction = Transaction::new().check(&key, Check::Version(run.version)).delete(&key);
        self.store().commit(transaction).await.map(drop).map_err(run_error)
    }

    /// Continues runs that a crash interrupted. `is_own` is asked with the collection and the id of the
    /// object of a run.
    pub async fn resume_macros(
        &self,
        is_own: impl Fn(&str, &str) -> bool + Send,
    ) -> Result<(), Error> {
        let (mut after, mut tasks) = (None::<String>, JoinSet::new());
        loop {
            let page = self.store().range(RUNS, after.as_deref(), PAGE).await?;
            for entry in &page.entries {
                let Some(id) = entry.key.strip_prefix(RUNS) else { continue };
                let record: RunRecord = decode(&entry.key, &entry.value)?;
                if record.failure.is_some() || !is_own(&record.collection, &record.object) {
                    continue;
                }
                if tasks.len() >= MAX_CONTINUED {
                    tasks.join_next().await;
                }
                let (grid, id) = (self.clone(), id.to_owned());
                tasks.spawn(async move { grid.resume_macro(&id).await });
            }
            after = page.entries.last().map(|it| it.key.clone());
            if !page.more {
                break;
            }
        }
        tasks.join_all().await;
        Ok(())
    }

    async fn resume_macro(&self, id: &str) {
        let Some(_active) = self.active_runs.claim(id) else { return };
        match self.continue_run(id).await {
            Ok(()) => tracing::info!(run = id, "resumed macro run finished"),
            Err(error) => tracing::warn!(run = id, %error, "resumed macro run failed"),
        }
    }

    async fn continue_run(&self, id: &str) -> Result<(), Error> {
        let Some(mut run) = self.read_run(id).await? else { return Ok(()) };
        let (class, call) = (self.class(), run.record.invocation()?);
        let key = Self::key(&class, call.collection.as_deref(), &call.id)?;
        let once =
            call.idempotency_key.as_deref().map(|it| Once::new(&call, &key, it)).transpose()?;
        let mut backoff = FIRST_BACKOFF;
        loop {
            match self.drive(&class, &mut run, &call).await {
                Ok(()) => return self.finish_run(&run, once.as_ref()).await.map(drop),
                // Functions may start later than the grid.
                Err(error) if error.is_transient() && now() < run.record.deadline => {
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                    // The failure may have been that of a write.
                    let Some(present) = self.read_run(id).await? else { return Ok(()) };
                    run = present;
                }
                Err(error) => {
                    self.fail_run(run, &error).await?;
                    return Err(error);
                }
            }
        }
    }

    /// Deletes expired results for idempotency keys, and expired runs of macros.
    pub async fn forget_results(&self) -> Result<(), Error> {
        self.results.forget(self.store()).await?;
        let mut after = None::<String>;
        loop {
            let page = self.store().range(RUNS, after.as_deref(), PAGE).await?;
            for entry in &page.entries {
                let record: RunRecord = decode(&entry.key, &entry.value)?;
                if record.at.max(record.deadline) >= now() - PERIOD {
                    continue;
                }
                let transaction = Transaction::new()
                    .check(&entry.key, Check::Version(entry.version))
                    .delete(&entry.key);
                match self.store().commit(transaction).await {
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            after = page.entries.last().map(|it| it.key.clone());
            if !page.more {
                return Ok(());
            }
        }
    }
}

fn failed_step(step: String, error: Error) -> Error {
    match error {
        // The run is continued elsewhere.
        Error::Running => Error::Running,
        error => Error::StepFailed { step, error: Box::new(error) },
    }
}

/// Only one process continues a run.
fn run_error(error: StoreError) -> Error {
    match error {
        StoreError::Conflict { .. } => Error::Running,
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
