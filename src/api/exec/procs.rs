//! Every exec with its live processes.

use std::rc::Rc;

use super::answer::{ProcGroup, ProcsAnswer};
use super::json;
use crate::api::row::Answer;
use crate::app::App;
use crate::error::Result;

pub(super) async fn procs(app: Rc<App>) -> Result<Answer> {
    let groups = app.execs.procs().await?;
    let procs = groups.iter().map(ProcGroup::from).collect();
    json(&ProcsAnswer { procs })
}
