//! Pages in a browser: Chromium without a window draws them, and what it drew is counted.
//!
//! Without Chromium on the machine these tests say so and pass; `scripts/setup.sh browser` installs it.

use super::drawing::{Drawing, Form};
use super::look::Looks;
use super::tests::every_chart;
use super::{Page, Part, to_html};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long the browser may take for a page. It takes seconds; one that hangs would hang the tests.
const LIMIT: Duration = Duration::from_secs(90);

/// What Chromium made of a page: its document, and what was written to the console.
struct Seen {
    document: String,
    console: Vec<String>,
}

/// Opens a page; none without a Chromium.
fn open(folder: &Path, html: &str, dark: bool) -> Option<Seen> {
    let Some(program) =
        ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| crate::paths::have_program(name))
    else {
        println!("skipped: there is no chromium; scripts/setup.sh browser installs it");
        return None;
    };
    let file = folder.join("page.html");
    std::fs::write(&file, html).unwrap();
    let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
    let mut command = Command::new(program);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--log-level=0",
            "--window-size=1280,900",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap());
    let status = within(command, LIMIT);
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let (stdout, stderr) = (read(stdout), read(stderr));
    let status = status.unwrap_or_else(|| panic!("Chromium has not drawn the page in {LIMIT:?}:\n{stderr}"));
    assert!(status.success(), "{stderr}");
    let console = stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect();
    // Some versions write these two as they are within attributes.
    let document = stdout.replace("&lt;", "<").replace("&gt;", ">");
    Some(Seen { document, console })
}

/// Runs a program for so long at most, then ends it with all that it has started: how it ended by itself.
fn within(mut command: Command, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    // A group of its own, as a browser is many processes.
    let mut child = command.process_group(0).spawn().unwrap();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let group = Pid::from_raw(child.id() as i32).expect("a process has a number");
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().unwrap();
    None
}

/// How many marks a chart has under a label.
fn marks(document: &str, chart: usize, label: &str) -> usize {
    let chart = document.split(&format!("id=\"chart-{chart}\"")).nth(1).expect("the chart is there");
    let chart = chart.split("<figcaption>").next().unwrap();
    let Some(group) = chart.split(&format!("aria-description=\"{label}\"")).nth(1) else { return 0 };
    let group = group.split("</g>").next().unwrap();
    ["<path", "<rect", "<line", "<circle"].iter().map(|tag| group.matches(tag).count()).sum()
}

/// Checks that each series of each chart has its marks.
pub fn check(page: &Page, document: &str) {
    let looks = Looks::of(page);
    let charts = page.sections.iter().flat_map(|section| &section.parts).filter_map(|part| match part {
        Part::Chart(chart) => Some(chart),
        Part::Text(_) | Part::Table(_) => None,
    });
    let drawn = charts.map(|chart| (chart, Drawing::of(chart, &looks))).filter(|(_, drawing)| !drawing.is_empty());
    let mut count = 0;
    for (n, (chart, drawing)) in drawn.enumerate() {
        for series in &drawing.series {
            let name = series.title.replace('&', "&amp;").replace('"', "&quot;");
            let has = |what: &str| marks(document, n, &format!("{name}: {what}"));
            let told = format!("{}: {}", chart.title, series.title);
            match drawing.form {
                Form::Lines => {
                    assert_eq!(has("line"), usize::from(!series.points.is_empty()), "{told}");
                    assert_eq!(has("points") > 0, !series.points.is_empty(), "{told}");
                    assert_eq!(has("spread"), series.points.iter().filter(|p| p.spread.is_some()).count(), "{told}");
                }
                Form::Points => assert_eq!(has("points"), series.points.len(), "{told}"),
                Form::Bars => assert_eq!(has("bars"), series.points.len(), "{told}"),
                Form::Areas => assert_eq!(has("area"), 1, "{told}"),
                Form::Boxes => {
                    assert_eq!((has("boxes"), has("medians")), (series.boxes.len(), series.boxes.len()), "{told}");
                }
            }
        }
        count = n + 1;
    }
    assert!(count > 0 && !document.contains(&format!("id=\"chart-{count}\"")), "all charts are known");
}

/// Opens a page on light and on dark ground and checks it.
pub fn look_at(name: &str, page: &Page) {
    let folder = tempfile::tempdir().unwrap();
    let html = to_html(page);
    if let Some(out) = std::env::var_os("STRATA_PAGES") {
        std::fs::write(Path::new(&out).join(format!("{name}.html")), &html).unwrap();
        for (file, svg) in super::to_markdown(page).1 {
            std::fs::write(Path::new(&out).join(format!("{name}-{file}")), svg).unwrap();
        }
    }
    // Tells the colour of the ground and whether the page is wider than its window.
    let told = "<script>document.title = `${getComputedStyle(document.documentElement).backgroundColor} \
                ${document.documentElement.scrollWidth <= innerWidth}`</script></body>";
    let html = html.replace("</body>", told);
    for (dark, ground) in [(false, "rgb(255, 255, 255)"), (true, "rgb(20, 24, 29)")] {
        let Some(seen) = open(folder.path(), &html, dark) else { return };
        assert_eq!(seen.console, Vec::<String>::new(), "dark {dark}");
        assert!(seen.document.contains(&format!("<title>{ground} true</title>")), "dark {dark}");
        check(page, &seen.document);
    }
}

#[test]
fn who_hangs_is_ended_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("sleep 600 & echo $! >{}; wait", file.display())]);
    assert!(within(command, Duration::from_secs(1)).is_none());
    let child = std::fs::read_to_string(&file).unwrap();
    // Gone, or dead and not waited for by who took it over.
    let began = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{stat}");
        std::thread::yield_now();
    }
    let mut command = Command::new("sh");
    command.args(["-c", "exit 3"]);
    assert_eq!(within(command, LIMIT).and_then(|status| status.code()), Some(3));
}

#[test]
fn every_chart_has_its_marks() {
    look_at("every", &every_chart());
}

/// The test sees what is written to the console, and that the page's own policy refuses the network.
#[test]
fn a_bad_page_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let html = to_html(&every_chart());
    let with = |script: &str| html.replace("</body>", &format!("<script>{script}</script></body>"));
    let Some(seen) = open(folder.path(), &with("console.error('wrong')"), false) else { return };
    assert_eq!(seen.console.len(), 1, "{:?}", seen.console);
    let seen =
        open(folder.path(), &html.replace("</body>", "<img src=\"http://example.com/a.png\"></body>"), false).unwrap();
    assert_eq!(seen.console.len(), 1, "{:?}", seen.console);
    let seen = open(folder.path(), &html.replace("const all = wide", "return; const all = wide"), false).unwrap();
    assert!(std::panic::catch_unwind(|| check(&every_chart(), &seen.document)).is_err(), "nothing is drawn");
}
