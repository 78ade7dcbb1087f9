//! Both renderers on pages that are hard to show.

use super::*;

/// Every kind of chart, and what each of them may meet.
pub fn every_chart() -> Page {
    let long = "A series whose name is longer than any screen of a phone is wide, <b>&\"quoted\"</b>";
    let mut page = Page::new("Every chart <script>alert(1)</script>");
    page.verdict.push("Strata is ahead of InnoDB & \"others\" by 2.1 (1.9 to 2.3).".into());
    let axes = || (Axis::new("memory", "GB"), Axis::new("throughput", "transactions/s"));
    let categories = || vec!["5 GB".to_string(), "a category with quite a long name".into(), "100 GB".into()];
    let wave = |n: usize, height: f64| (0..n).map(move |i| height * (1.5 + (i as f64 * 0.37).sin()));
    let mut section = Section::new("All kinds");
    section.text("A paragraph with <tags> & signs.");
    let spread = |v: f64| Figure { value: v, low: Some(v * 0.8), high: Some(v * 1.1), n: 3 };
    let lines = |names: [&str; 2]| {
        Plot::Lines(vec![
            Series::new(names[0], (1..=11).map(|n| (f64::from(n * 10), spread(4000.0 + f64::from(n) * 50.0)))),
            Series::new(names[1], (1..=11).map(|n| (f64::from(n * 10), spread(f64::from(n) * 550.0)))),
            Series::new(names[1], [(50.0, 2500.0), (10.0, 849.0), (100.0, 5985.0)]).original(),
        ])
    };
    let mut add = |title: &str, y: Axis, plot: Plot| {
        section.chart(Chart::new(title, axes().0, y, plot).caption("Whiskers: smallest and largest of three."));
    };
    let samples = || {
        ["Strata", "InnoDB", long].map(|name| Samples {
            name: name.into(),
            values: vec![wave(200, 100.0).collect(), vec![50.0], vec![]],
            ..Samples::default()
        })
    };
    add("Lines", axes().1, lines(["Strata", "InnoDB"]));
    add("Lines on a logarithmic axis", axes().1.log(), lines(["Strata", "InnoDB"]));
    let scatter = ["Strata", "InnoDB"]
        .map(|name| Series::new(name, wave(900, name.len() as f64 * 70.0).enumerate().map(|(n, y)| (n as f64, y))));
    add("Scatter", axes().1, Plot::Scatter(scatter.into()));
    add("Jitter", axes().1, Plot::Jitter { categories: categories(), samples: samples().into() });
    add("Box plots", axes().1, Plot::Boxes { categories: categories(), samples: samples().into() });
    let bars = |name: &str, origin: Origin| Bars {
        name: name.into(),
        origin,
        values: vec![Some(spread(3.0)), None, Some(spread(5.5))],
    };
    let both = vec![bars("Strata", Origin::Ours), bars("InnoDB", Origin::Ours), bars("InnoDB", Origin::Original)];
    add("Bars", axes().1, Plot::Bars { categories: categories(), bars: both });
    let layers = |n: usize| {
        [("user", 50.0), ("system", 11.0), ("wait", 20.0), ("idle", 19.0)]
            .map(|(name, value)| Layer { name: name.into(), values: vec![value; n] })
    };
    let stacked = Plot::StackedBars { categories: categories(), layers: layers(3).into() };
    add("Stacked bars", Axis::new("processors", "%"), stacked);
    let x = (0..60).map(f64::from).collect();
    add("Stacked areas", Axis::new("processors", "%"), Plot::StackedAreas { x, layers: layers(60).into() });
    add("Nothing", axes().1, Plot::Lines(vec![]));
    add("No numbers", axes().1.log(), Plot::Scatter(vec![Series::new("Strata", [(1.0, f64::NAN), (2.0, 0.0)])]));
    add("One point", axes().1, Plot::Lines(vec![Series::new("Strata", [(5.0, 7.0)])]));
    add("Zeros", axes().1, Plot::Lines(vec![Series::new("Strata", (0..9).map(|n| (f64::from(n), 0.0)))]));
    section.table(Table {
        caption: "A table | with signs".into(),
        corner: "figure".into(),
        columns: ["Strata/InnoDB", "Strata", "InnoDB"].map(|head| Column { head: head.into(), unit: "".into() }).into(),
        rows: vec![Row {
            head: "transactions/s".into(),
            cells: vec![Cell::Ratio(spread(2.0)), Cell::Figure(spread(400.0)), Cell::Empty],
        }],
    });
    page.sections.push(section);
    page.conditions = vec![
        Condition { name: "server".into(), value: "10.11 <here>".into(), original: Some("8.0".into()) },
        Condition { name: "binary log".into(), value: "on".into(), original: Some("on".into()) },
    ];
    page.attachments.push(Attachment {
        name: "runs.json".into(),
        title: "all runs".into(),
        content: "{\"a\": \"<ä>\"}".into(),
    });
    page
}

#[test]
fn nothing_in_html_is_taken_for_markup() {
    let html = to_html(&every_chart());
    assert!(!html.contains("<script>alert"), "the title is escaped");
    assert!(html.contains("<title>Every chart &lt;script&gt;alert(1)&lt;/script&gt;</title>"));
    assert!(html.contains("signs."));
    assert!(html.contains("\\u003cb>&\\\"quoted\\\"\\u003c/b>"), "names in the drawings end no script");
    assert!(html.contains("href=\"data:application/json;base64,eyJhIjogIjzDpD4ifQ==\""));
    assert_eq!(html.matches("Permission to use, copy, modify").count(), 2, "the library's licences");
    // Links of licences and namespaces are text; nothing is fetched.
    let own = html.split("<script>/*\nCopyright").next().unwrap();
    assert!(!own.contains("http:") && !own.contains("https:") && !own.contains("src="), "nothing comes from elsewhere");
}

#[test]
fn html_says_what_it_does_not_show() {
    let html = to_html(&every_chart());
    assert_eq!(html.matches("There are no values to show.").count(), 2);
    assert!(html.contains("2 values are not shown"));
    assert!(html.contains("<tr class=\"differs\"><th scope=\"row\">server</th>"));
    assert_eq!(html.matches("class=\"differs\"").count(), 1);
    assert!(html.contains("<td class=\"ratio\">2.00 <small>1.60 to 2.20, n 3</small></td>"));
    assert!(html.contains("InnoDB (original)"));
}

#[test]
fn a_page_without_charts_carries_no_library() {
    let mut page = Page::new("words");
    page.sections.push(Section::new("s"));
    assert!(to_html(&page).len() < 10_000);
}

#[test]
fn markdown_has_a_file_for_each_chart_with_values() {
    let (text, files) = to_markdown(&every_chart());
    assert_eq!(files.len(), 10);
    for (name, svg) in &files {
        assert!(text.contains(&format!("]({name})")), "{name}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{name}");
        assert!(svg.contains("<text") && !svg.contains("NaN") && !svg.contains("<b>"), "{name}");
    }
    assert!(text.contains("# Every chart &lt;script&gt;alert(1)&lt;/script&gt;\n"));
    assert!(text.contains("A table \\| with signs"));
    assert!(text.contains("| transactions/s | **2.00** (1.60 to 2.20, n 3) | 400 (320 to 440, n 3) | – |"));
    assert!(text.contains("| server | 10.11 &lt;here&gt; | ≠ 8.0 |"));
}

#[test]
fn an_empty_page_is_a_page() {
    assert!(to_html(&Page::default()).contains("<main>\n<h1></h1>\n</main>"));
    assert_eq!(to_markdown(&Page::new("t")), ("# t\n".to_string(), vec![]));
}
