//! Every exec with its live processes.

use std::rc::Rc;

use super::answer::{ProcGroup, ProcsAnswer};
use super::written;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::Result;
use crate::exec::Group;
use crate::ring::pool;

pub(super) async fn procs(app: Rc<App>, call: Call) -> Result<Answer> {
    if !call.query.flag("detail", false)? {
        return document(&app.execs.procs().await?).map(Answer::Json);
    }
    let groups = app.execs.procs_in_detail().await?;
    // With the command lines of many processes this takes its time.
    let document = pool::run(move || document(&groups)).await?;
    document.map(Answer::Json)
}

fn document(groups: &[Group]) -> Result<Vec<u8>> {
    let procs = groups.iter().map(ProcGroup::from).collect();
    written(&ProcsAnswer { procs })
}
