//! What the daemon counts, as Prometheus reads it.

mod families;

use std::rc::Rc;

use super::coding::thousandths;
use super::row::{Access, Answer, Call, Form, Method, Produce, Row, Run, Source};
use crate::app::App;
use crate::error::Result;
use crate::ring::{Outflow, Step, pool, process};
use crate::wire::http::head::Fields;
use crate::wire::prometheus::{Document, Format};
use families::Seen;

/// The rows of this room.
pub static ROWS: &[Row] = &[Row {
    name: "metrics",
    method: Method::Get,
    path: "/v1/metrics",
    access: Access::Scraper,
    form: Form::Text,
    about: "what the daemon counts, as Prometheus reads it",
    errors: &[],
    run: |app, call| -> Run { Box::pin(metrics(app, call)) },
}];

async fn metrics(app: Rc<App>, call: Call) -> Result<Answer> {
    // Looked at first: what is asked below may be a job of the pool itself.
    let pool = pool::LANES.map(|lane| (lane, pool::load(lane)));
    let seen = Seen {
        pool,
        process: process::usage().await,
        disk: app.disk.read(app.config.limits.disk_reserve_bytes).await,
    };
    let format = wanted(&call.fields);
    let mut document = Document::new(format);
    families::write(&app, &seen, &mut document);
    let text = document.finish();
    Ok(Answer::Bytes(Source {
        media: format.media(),
        length: Some(text.len() as u64),
        part: None,
        fields: vec![("vary", "accept".to_owned())],
        produce: Box::new(Text(text)),
    }))
}

/// The document, written.
struct Text(Vec<u8>);

impl Produce for Text {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { sink.write(&self.0).await })
    }
}

/// OpenMetrics for whoever names it and likes it no less than plain text; for all others Prometheus' own format.
fn wanted(fields: &Fields) -> Format {
    let best = |media: &[u8], version: &str| {
        let values = fields.all("accept");
        let ranges = values.flat_map(|value| value.split(|byte| *byte == b','));
        ranges
            .filter_map(|range| weight(range, media, version))
            .max()
    };
    let open = best(b"application/openmetrics-text", "1.0.0").unwrap_or(0);
    let text = best(b"text/plain", "0.0.4").unwrap_or(0);
    match open > 0 && open >= text {
        true => Format::Open,
        false => Format::Text,
    }
}

/// How much `range` wants this media type, in thousandths; `None` when it names another type or version.
fn weight(range: &[u8], media: &[u8], version: &str) -> Option<u16> {
    let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    if !parts.next()?.eq_ignore_ascii_case(media) {
        return None;
    }
    let mut weight = 1000;
    for part in parts {
        let (name, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
        if name.eq_ignore_ascii_case("version") && value != version {
            return None;
        }
        if name.eq_ignore_ascii_case("q") {
            weight = thousandths(value)?;
        }
    }
    Some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Limits, Step, parse};

    fn check(accept: &str, expected: Format) {
        let head = format!("GET / HTTP/1.1\r\n{accept}\r\n");
        let limits = Limits {
            bytes: 4096,
            fields: 10,
            target: 100,
        };
        let Ok(Step::Done(head, _)) = parse(head.as_bytes(), &limits) else {
            panic!("not a head: {head:?}");
        };
        assert_eq!(wanted(&head.fields), expected, "{accept}");
    }

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        // What Prometheus 2 and 3 send.
        check(
            "accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
            Format::Open,
        );
        check(
            "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n",
            Format::Open,
        );
        check("Accept: Application/OpenMetrics-Text\r\n", Format::Open);
        check(
            "accept: text/plain;q=0.1\r\naccept: application/openmetrics-text; q=0.2\r\n",
            Format::Open,
        );
    }

    #[test]
    fn all_others_get_the_text() {
        for accept in [
            "",
            "accept: */*\r\n",
            "accept: text/html, application/json\r\n",
            "accept: application/openmetrics-text;version=0.0.1\r\n",
            "accept: application/openmetrics-text;q=0\r\n",
            "accept: application/openmetrics-text;q=0.3, text/plain\r\n",
            "accept: application/openmetrics-text;q=many\r\n",
            "accept: application/openmetrics-texts\r\n",
            "accept: ;;=,\r\n",
        ] {
            check(accept, Format::Text);
        }
    }
}
