//! Results as a page, as charts and as Markdown.

mod cast;
mod charts;
mod escape;
mod figure;
mod headline;
mod html;
mod overview;
mod setting;
mod summary;
mod svg;

pub(crate) use cast::Cast;
pub(crate) use charts::Charts;
pub(crate) use html::page;
pub(crate) use summary::summary;
