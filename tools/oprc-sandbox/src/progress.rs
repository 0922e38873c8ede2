//! Progress of long steps: a spinner with elapsed time on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal, stderr},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// How often a long step prints a line where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// One step that takes time. It shows that it runs until it is dropped; [`Step::done`] also reports
/// success and the duration.
pub struct Step {
    title: String,
    started: Instant,
    display: Display,
}

enum Display {
    Spinner(ProgressBar),
    Lines {
        detail: Arc<Mutex<String>>,
        /// The printing thread ends when this is dropped.
        _running: mpsc::Sender<()>,
    },
}

impl Step {
    pub fn begin(title: impl Into<String>) -> Self {
        let (title, started) = (title.into(), Instant::now());
        let display = if stderr().is_terminal() {
            spinner(&title)
        } else {
            eprintln!("… {title}");
            lines(title.clone(), started, PLAIN_INTERVAL, |line| eprintln!("{line}"))
        };
        Self { title, started, display }
    }

    /// Sets what the step is working on now.
    pub fn detail(&self, text: &str) {
        match &self.display {
            Display::Spinner(bar) => bar.set_message(format!("{}: {text}", self.title)),
            Display::Lines { detail, .. } => text.clone_into(&mut detail.lock()),
        }
    }

    pub fn done(self) {
        let line = format!("✓ {} ({:.1} s)", self.title, self.started.elapsed().as_secs_f64());
        // Clears the spinner first.
        drop(self);
        eprintln!("{line}");
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Display::Spinner(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn spinner(title: &str) -> Display {
    let bar = ProgressBar::new_spinner().with_message(title.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    Display::Spinner(bar)
}

/// Prints a line each `interval`, also while the step has nothing to report.
fn lines(
    title: String,
    started: Instant,
    interval: Duration,
    print: impl Fn(&str) + Send + 'static,
) -> Display {
    let detail = Arc::new(Mutex::new(String::new()));
    let (running, stopped) = mpsc::channel();
    let current = Arc::clone(&detail);
    thread::spawn(move || {
        while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
            let detail = current.lock().clone();
            let separator = if detail.is_empty() { "" } else { ": " };
            print(&format!("… {title}{separator}{detail} ({} s)", started.elapsed().as_secs()));
        }
    });
    Display::Lines { detail, _running: running }
}

/// Prints one line about something that takes no time.
pub(crate) fn note(text: &str) {
    eprintln!("  {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_elapsed_time_while_a_step_runs_and_stops_with_it() {
        let (printed, lines_seen) = mpsc::channel();
        let print = move |line: &str| drop(printed.send(line.to_owned()));
        let display = lines("Building".to_owned(), Instant::now(), Duration::from_millis(5), print);
        assert_eq!(lines_seen.recv().unwrap(), "… Building (0 s)");
        let step = Step { title: "Building".to_owned(), started: Instant::now(), display };
        step.detail("3 packages");
        assert!(lines_seen.iter().any(|line| line == "… Building: 3 packages (0 s)"));
        drop(step);
        // This returns only because the printing thread ends and closes the channel.
        let _ = lines_seen.iter().count();
    }
}
