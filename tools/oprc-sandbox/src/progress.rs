//! Tells what is going on: a spinner with elapsed time on a terminal, plain lines elsewhere.

use std::{
    cell::Cell,
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a long step speaks where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// One step that takes time; it says how it ended when [`Step::done`] is called.
pub(crate) struct Step {
    title: String,
    begun: Instant,
    bar: Option<ProgressBar>,
    said: Cell<Instant>,
}

impl Step {
    /// Begins a step and says so.
    pub(crate) fn begin(title: impl Into<String>) -> Self {
        let title = title.into();
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_message(title.clone());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            eprintln!("… {title}");
        }
        let begun = Instant::now();
        Self { title, begun, bar, said: Cell::new(begun) }
    }

    /// Says where the step is; without a terminal only now and then.
    pub(crate) fn detail(&self, detail: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {detail}", self.title));
        } else if self.said.get().elapsed() >= PLAIN_INTERVAL {
            self.said.set(Instant::now());
            eprintln!("… {}: {detail} ({} s)", self.title, self.begun.elapsed().as_secs());
        }
    }

    /// Ends the step well.
    pub(crate) fn done(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        eprintln!("✓ {} ({:.1} s)", self.title, self.begun.elapsed().as_secs_f64());
    }
}

/// Says one thing that takes no time.
pub(crate) fn say(text: &str) {
    eprintln!("  {text}");
}
