//! Progress of long steps on standard error: a spinner on a terminal; otherwise a line at the start,
//! one every 30 seconds, and one at the end.

use std::{
    io::{IsTerminal as _, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{duration::short, note, sanitize};

const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Runs a step and reports `title` with the elapsed time.
pub(crate) async fn step<T, E>(
    title: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let title = format!("  {}", sanitize(title));
    if !stderr().is_terminal() {
        return with_lines(&title, work, note).await;
    }
    let started = Instant::now();
    let spinner = ProgressBar::new_spinner().with_message(title.clone());
    if let Ok(style) = ProgressStyle::with_template("{msg} … {elapsed} {spinner}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    let result = work.await;
    spinner.finish_and_clear();
    note(&last_line(&title, result.is_ok(), started.elapsed()));
    result
}

async fn with_lines<T, E>(
    title: &str,
    work: impl Future<Output = Result<T, E>>,
    print: impl Fn(&str),
) -> Result<T, E> {
    let started = tokio::time::Instant::now();
    print(&format!("{title} …"));
    let mut interval = tokio::time::interval_at(started + REPORT_INTERVAL, REPORT_INTERVAL);
    let mut work = std::pin::pin!(work);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = interval.tick() => print(&format!("{title} … {}", short(started.elapsed()))),
        }
    };
    print(&last_line(title, result.is_ok(), started.elapsed()));
    result
}

fn last_line(title: &str, succeeded: bool, elapsed: Duration) -> String {
    let result = if succeeded { "done" } else { "failed" };
    format!("{title} … {result} ({})", short(elapsed))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn lines_of(seconds: u64, result: Result<(), ()>) -> Vec<String> {
        let lines = RefCell::new(Vec::new());
        let work = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            result
        };
        let print = |line: &str| lines.borrow_mut().push(line.to_owned());
        assert_eq!(with_lines("loading images", work, print).await, result);
        lines.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn reports_start_every_30_seconds_and_end_without_a_terminal() {
        assert_eq!(
            lines_of(70, Ok(())).await,
            [
                "loading images …",
                "loading images … 30s",
                "loading images … 60s",
                "loading images … done (70s)"
            ]
        );
        let failed = lines_of(1, Err(())).await;
        assert_eq!(failed, ["loading images …", "loading images … failed (1s)"]);
    }
}
