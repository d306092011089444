//! A page with the figures and pictures of a run or a sweep: one file that needs nothing else, without scripts.

mod chart;
mod pictures;

use std::fmt::Write;

use crate::goodput::Goodput;
use crate::outcome::{Origin, Outcome};
use crate::report::{Percentiles, Report};
use crate::sweep::Sweep;
use chart::number;

/// The page, well-formed as XML too.
pub fn page(outcome: &Outcome, origin: &Origin) -> String {
    let first = outcome.reports().first().copied();
    let title = first.map_or_else(|| "nothing".to_owned(), |report| format!("{} at {}", report.workload, report.url));
    let body = match outcome {
        Outcome::Run(report) => run(report),
        Outcome::Sweep(sweep) => swept(sweep),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}{}</body>\n</html>\n",
        from(origin),
        title = escape(&title),
    )
}

const STYLE: &str = include_str!("style.css");

fn run(report: &Report) -> String {
    let prompts = match report.prompt_tokens {
        0 => String::new(),
        tokens => format!(" to {} prompt tokens", number(tokens as f64)),
    };
    format!(
        "<p class=\"soft\">{}, {}: {} whole answers{prompts}, {} output tokens, in {} s</p>\n{}{}{}<h2>Times</h2>\n{}<h2>Processor</h2>\n{}",
        escape(&report.api),
        escape(&report.arrivals),
        number(report.whole as f64),
        number(report.output_tokens as f64),
        number(report.seconds),
        tiles(report),
        troubles(report),
        charts(report),
        times(report),
        processors(report),
    )
}

fn charts(report: &Report) -> String {
    format!(
        "<h2>What went on when</h2>\n<div class=\"charts\">\n{}</div>\n\
         <h2>How long it took: the share of all that took at most so long</h2>\n<div class=\"charts\">\n{}</div>\n",
        pictures::timeline(report),
        pictures::distributions(report)
    )
}

fn swept(sweep: &Sweep) -> String {
    let mut body = String::new();
    if let Some(first) = sweep.points.first() {
        let limits = first.report.goodput.map(|goodput| format!("; good: {}", goodput.limits)).unwrap_or_default();
        let _ = writeln!(body, "<p class=\"soft\">{}{}</p>", escape(&first.report.api), escape(&limits));
    }
    let limited = sweep.points.iter().any(|point| point.report.goodput.is_some());
    let none = if limited { "none: no load is good" } else { "none: more load might still bring more" };
    let knee = sweep.knee.map_or_else(|| none.to_owned(), number);
    let most = sweep.points.iter().map(|point| point.report.output_tokens_per_s).fold(0.0, f64::max);
    let two = tile(&knee, &format!("knee, {}", sweep.of.unit())) + &tile(&number(most), "most output tokens/s");
    let _ = writeln!(body, "<div class=\"tiles\">{two}</div>");
    let _ = writeln!(body, "<h2>What more load does</h2>\n<div class=\"charts\">\n{}</div>", pictures::curves(sweep));
    let _ = writeln!(body, "<h2>Figures</h2>\n{}", sweep_table(sweep));
    for point in &sweep.points {
        let load = escape(&point.report.arrivals);
        let _ = writeln!(
            body,
            "<details><summary>{load}</summary>\n{}{}{}{}</details>",
            tiles(&point.report),
            troubles(&point.report),
            charts(&point.report),
            times(&point.report)
        );
    }
    body
}

fn tiles(report: &Report) -> String {
    let mut tiles = vec![
        tile(&number(report.output_tokens_per_s), "output tokens/s"),
        tile(&number(report.requests_per_s), "requests/s"),
        tile(&milliseconds(report.ttft_ms.p50), "TTFT, median"),
        tile(&milliseconds(report.ttft_ms.p99), "TTFT, p99"),
        tile(&milliseconds(report.itl_ms.p99), "ITL, p99"),
    ];
    if let Some(Goodput { share, limits, .. }) = report.goodput {
        tiles.push(tile(&format!("{} %", number(share * 100.0)), &format!("good: {limits}")));
    }
    format!("<div class=\"tiles\">{}</div>\n", tiles.concat())
}

fn tile(value: &str, name: &str) -> String {
    format!("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape(value), escape(name))
}

fn milliseconds(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{} s", number(ms / 1e3)) } else { format!("{} ms", number(ms)) }
}

/// Failures and answers of another length than asked; nothing where there are none.
fn troubles(report: &Report) -> String {
    let mut lines = Vec::new();
    for (count, what) in [(report.short, "fewer"), (report.long, "more")] {
        if count > 0 {
            lines.push(format!("{count} answers have {what} tokens than asked"));
        }
    }
    lines.extend(report.failures.iter().map(|(cause, count)| format!("{count} failed: {cause}")));
    lines.iter().map(|line| format!("<p class=\"bad\">{}</p>\n", escape(line))).collect()
}

fn times(report: &Report) -> String {
    let mut rows = String::new();
    let all = [
        ("first token (TTFT)", Some(&report.ttft_ms)),
        ("between tokens (ITL)", Some(&report.itl_ms)),
        ("per token after the first", Some(&report.tpot_ms)),
        ("whole answer (E2E)", Some(&report.e2e_ms)),
        ("sent later than due", report.late_ms.as_ref()),
    ];
    for (name, Percentiles { mean, p50, p90, p99, max }) in all.into_iter().filter_map(|(name, row)| Some((name, row?)))
    {
        let values = [mean, p50, p90, p99, max].map(|&ms| format!("<td>{ms:.3}</td>")).concat();
        let _ = writeln!(rows, "<tr><td>{name}</td>{values}</tr>");
    }
    table("<th>ms</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>max</th>", &rows)
}

fn processors(report: &Report) -> String {
    let all = [
        ("server", report.server_cpu),
        ("server, from start to end", report.server_life_cpu),
        ("this client", Some(report.client_cpu)),
    ];
    let mut rows = String::new();
    for (name, cpu) in all.into_iter().filter_map(|(name, cpu)| Some((name, cpu?))) {
        let _ = writeln!(
            rows,
            "<tr><td>{name}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td></tr>",
            cpu.user_s, cpu.system_s, cpu.cores, cpu.us_per_token
        );
    }
    table("<th></th><th>user s</th><th>system s</th><th>cores</th><th>µs a token</th>", &rows)
}

fn sweep_table(sweep: &Sweep) -> String {
    let mut rows = String::new();
    for point in &sweep.points {
        let report = &point.report;
        let class = if sweep.knee == Some(point.load) { " class=\"knee\"" } else { "" };
        let good = report.goodput.map_or("–".to_owned(), |goodput| format!("{:.1}", goodput.share * 100.0));
        let Report { ttft_ms, itl_ms, e2e_ms, .. } = report;
        let times = [ttft_ms.p50, ttft_ms.p99, itl_ms.p50, itl_ms.p99, e2e_ms.p99];
        let times: String = times.map(|ms| format!("<td>{ms:.2}</td>")).concat();
        let figures = format!("<td>{:.1}</td><td>{:.2}</td>{times}", report.output_tokens_per_s, report.requests_per_s);
        let _ = writeln!(
            rows,
            "<tr{class}><td>{}</td>{figures}<td>{good}</td><td>{}</td><td>{}</td></tr>",
            number(point.load),
            report.short,
            report.failed
        );
    }
    let head =
        ["tokens/s", "req/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "E2E p99", "good %", "short", "failed"];
    let head = head.map(|name| format!("<th>{name}</th>")).concat();
    table(&format!("<th>{}</th>{head}", sweep.of.unit()), &rows)
}

fn table(head: &str, rows: &str) -> String {
    format!("<div class=\"scroll\"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n")
}

fn from(origin: &Origin) -> String {
    format!(
        "<h2>How it was measured</h2>\n<pre>{}</pre>\n<p class=\"soft\">{}; {}; the client ran on {}</p>\n",
        escape(&origin.command),
        escape(&origin.started),
        escape(&origin.version),
        escape(&origin.machine)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::answer::{AskError, Whole};
    use crate::sweep::{Axis, Point};
    use crate::tally::{Ended, Tally};
    use crate::{Api, Arrivals, Asks, Bench, Cpu, Gaps, Limits, Load, Target, Words, Workload};

    /// A run of ten answers and one failure whose sentence is full of markup.
    fn report(per_second: f64) -> Report {
        let limits = Limits { ttft_ms: Some(15.0), itl_ms: Some(9.0) };
        let began = Instant::now();
        let ms = Duration::from_millis;
        let mut tally = Tally::new(limits, began);
        for number in 0..10 {
            let whole = Whole { ttft: ms(10 + number), e2e: ms(30 + number), tokens: 3, prompt_tokens: Some(5) };
            tally.late(ms(1));
            tally.whole(&Ended { whole, sent: began + ms(number * 20), gaps: &[9_000, 11_000], reads: 3, asked: 4 });
        }
        tally.failed(&AskError::Said("<b>\"&'</b>".into()), began, began + ms(5));
        let bench = Bench {
            target: Target::new("http://host:1/a&b", Api::Tgi, "m".into(), None).unwrap(),
            workload: Workload {
                name: "<seed>".into(),
                asks: Asks::Same { prompt: String::new(), output_tokens: 4 },
                words: Words::common(),
                seed: 1,
            },
            load: Load {
                arrivals: Arrivals::Rate { per_second, gaps: Gaps::Poisson },
                requests: 11,
                duration: None,
                warmup: 0,
                timeout: ms(1000),
            },
            limits,
            first: 0,
            parse_events: false,
            server: None,
        };
        Report::new(&bench, &tally, ms(250), Cpu::default(), None)
    }

    fn pages() -> [String; 2] {
        let origin = Origin {
            command: "headrace bench --prompt '<&>'".into(),
            started: "2026-01-01T00:00:00Z".into(),
            machine: "2 cores".into(),
            version: "headrace 1".into(),
        };
        let points = [1.0, 2.0, 4.0].map(|load| Point { load, report: report(load) });
        let sweep = Sweep::new(Axis::Rate, points.into());
        [Outcome::Run(Box::new(report(5.0))), Outcome::Sweep(sweep)].map(|outcome| page(&outcome, &origin))
    }

    /// Every element ends where its parent has not, every attribute is quoted, and what `&` begins is an entity.
    fn expect_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
        for piece in body.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').unwrap();
            assert!(!text.contains('>'), "{text}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else {
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                assert_eq!(tag.matches("=\"").count() * 2, tag.matches('"').count(), "{tag}");
                let name = tag.split([' ', '/']).next().unwrap();
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert!(open.is_empty(), "{open:?}");
        for after in page.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| after.starts_with(entity)), "&{after:.20}");
        }
    }

    #[test]
    fn pages_are_well_formed_whatever_a_server_said() {
        for page in pages() {
            expect_well_formed(&page);
            assert!(page.contains("&lt;seed&gt;") && page.contains("&lt;b&gt;&quot;&amp;'&lt;/b&gt;"));
        }
    }

    #[test]
    fn pages_refer_to_nothing_outside_themselves_and_run_nothing() {
        for page in pages() {
            for reference in ["src=", "href", "url(", "@import", "<script", "<link", "<iframe", "<object", "onload"] {
                assert!(!page.contains(reference), "{reference}");
            }
        }
    }

    #[test]
    fn a_run_has_its_two_timelines_and_three_distributions_and_a_sweep_its_curves_too() {
        let [run, sweep] = pages();
        assert_eq!(run.matches("<svg").count(), 5);
        assert_eq!(sweep.matches("<svg").count(), 5 + 3 * 5);
        assert_eq!(sweep.matches("class=\"knee\"").count(), 0, "no load is good here");
        assert!(sweep.contains("none: no load is good") && run.contains("10 answers have fewer tokens than asked"));
    }

    #[test]
    fn a_sweep_without_a_knee_says_where_it_might_be() {
        let mut point = Point { load: 1.0, report: report(1.0) };
        let told = |point: &Point| swept(&Sweep::new(Axis::Rate, vec![point.clone()]));
        assert!(told(&point).contains("none: no load is good"));
        point.report.goodput = None;
        assert!(told(&point).contains("none: more load might still bring more"));
    }
}
