//! What this door publishes about the operations: two documents, made of the rows and of the limits in force.

mod definitions;
mod openapi;
mod schema;
mod statuses;

use std::rc::Rc;

use serde_json::Value;

use crate::api::precondition::{self, Aim, Validators, Verdict};
use crate::api::{Access, Answer, Document, Method, Produce, Row, Source};
use crate::app::App;
use crate::app::described::Described;
use crate::config::Config;
use crate::error::{Kind, Result};
use crate::ring::{Outflow, Step};
use crate::wire::http::head::Fields;

/// The document as people read it, and as it is kept in `docs/`.
pub fn printed(document: Document, config: &Config) -> String {
    // Texts and numbers are always JSON.
    let mut text = serde_json::to_string_pretty(&made(document, config)).unwrap_or_default();
    text.push('\n');
    text
}

/// The answer to a client that sends `fields`: the document, unless it holds that already.
pub(super) async fn answer(app: &App, document: Document, fields: &Fields) -> Result<Answer> {
    let shelf = match document {
        Document::Schema => &app.schema,
        Document::OpenApi => &app.openapi,
    };
    let config = app.config.clone();
    let made = shelf.text(move || made(document, &config).to_string().into_bytes());
    let described = made.await?;
    let told = vec![("etag", described.etag.clone())];
    let validators = Validators {
        etag: Some(described.etag.clone()),
        modified: None,
    };
    match precondition::judge(fields, Aim::Read, Some(&validators)) {
        Verdict::Unchanged => Ok(Answer::Unchanged(told)),
        Verdict::Failed => {
            Err(Kind::PreconditionFailed.told("the document is not the one that the request names"))
        }
        Verdict::Perform => Ok(Answer::Bytes(Source {
            media: "application/json",
            length: Some(described.text.len() as u64),
            part: None,
            fields: told,
            produce: Box::new(Text(described)),
        })),
    }
}

fn made(document: Document, config: &Config) -> Value {
    match document {
        Document::Schema => schema::document(config),
        Document::OpenApi => openapi::document(),
    }
}

struct Text(Rc<Described>);

impl Produce for Text {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { sink.write(&self.0.text).await })
    }
}

/// The method as requests write it.
fn method(row: &Row) -> &'static str {
    match row.method {
        Method::Get => "GET",
        Method::Put => "PUT",
        Method::Post => "POST",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    }
}

/// True when the handler reads the body, so that it can be cut short, silent or too long.
fn reads_a_body(row: &Row) -> bool {
    !row.contract.request.is_empty()
}

/// True when a body that is declared too long is refused.
fn bounds_a_body(row: &Row) -> bool {
    row.access == Access::Bearer && row.method != Method::Get
}
