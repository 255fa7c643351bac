//! Owners of files as requests name them: `USER`, `USER:GROUP` or `:GROUP`, each a number or a name.

use crate::error::{Kind, Result};
use crate::exec;
use crate::fs::upload::Owner;
use crate::ring::pool;

/// The owner that `text` names; none for no text.
///
/// # Errors
/// `Malformed` for a text that names nobody at all, `UnknownUser`, `UnknownGroup`.
pub(super) async fn find(text: Option<String>) -> Result<Owner> {
    let Some(text) = text else {
        return Ok(Owner::default());
    };
    let (user, group) = text.split_once(':').unwrap_or((&text, ""));
    if user.is_empty() && group.is_empty() || group.contains(':') {
        return Err(Kind::Malformed.told("owner must be USER, USER:GROUP or :GROUP"));
    }
    if let (Some(user), Some(group)) = (number(user), number(group)) {
        return Ok(Owner { user, group });
    }
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let (user, group) = (named(user), named(group));
    pool::run(move || {
        Ok(Owner {
            user: user.map(exec::user_id).transpose()?,
            group: group.map(exec::group_id).transpose()?,
        })
    })
    .await?
}

/// A number, or nothing for no text; `None` for what must be looked up.
fn number(text: &str) -> Option<Option<u32>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // The highest number means "leave it" to the kernel.
    let number = text.parse().ok().filter(|number| *number != u32::MAX);
    number.filter(|_| digits).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_looking_up() {
        for (text, expected) in [
            ("", Some(None)),
            ("0", Some(Some(0))),
            ("4294967294", Some(Some(4_294_967_294))),
            ("4294967295", None),
            ("+1", None),
            ("-1", None),
            ("root", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
