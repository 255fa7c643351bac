//! How a tunnel ends, and what its user is told about it.

/// The end of a tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides have said all they had to say.
    Whole,
    /// The local side is gone.
    Abandoned,
    /// Something is missing; the sentence says why.
    Broken(String),
}

/// What a close frame of the daemon means.
pub(super) fn closed(code: Option<u16>, reason: &str) -> Ending {
    let Some(code) = code.filter(|code| *code != NORMAL) else {
        return Ending::Whole;
    };
    // What a stranger sends must not steer a terminal.
    let shown: String = reason
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let why = match (code, shown.as_str()) {
        (1001, "") => "the daemon is leaving",
        (4401, "") => "the guest was launched without an identity",
        (4403, "") => "the identity handshake was refused",
        (4500, "") => "the connection in the guest failed",
        (4502, "") => "nothing is listening there in the guest",
        (_, "") => "the daemon does not say why",
        (_, told) => told,
    };
    let hint = match code {
        4401 => {
            "; it can be verified only if its run payload had identity_seed and identity_host_public_key"
        }
        4403 => {
            "; do --host-key-file and --guest-key belong to this guest? (older daemons need --protocol 1)"
        }
        _ => "",
    };
    Ending::Broken(format!("{why} (close code {code}){hint}"))
}

/// The code of an end without a fault (RFC 6455, section 7.4.1).
pub(super) const NORMAL: u16 = 1000;
/// The code of an end because this side leaves.
pub(super) const LEAVING: u16 = 1001;
/// The code of an end because the other side broke the protocol.
pub(super) const BROKEN: u16 = 1002;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_close_is_a_whole_end() {
        assert_eq!(closed(Some(1000), ""), Ending::Whole);
        assert_eq!(closed(None, ""), Ending::Whole);
    }

    #[test]
    fn every_code_of_the_contract_has_a_sentence() {
        for (code, reason, expected) in [
            (1001, "", "leaving (close code 1001)"),
            (
                4400,
                "port 0 cannot be dialled",
                "port 0 cannot be dialled (close code 4400)",
            ),
            (4401, "", "without an identity (close code 4401); it can"),
            (
                4403,
                "wrong pin",
                "wrong pin (close code 4403); do --host-key-file",
            ),
            (4500, "", "failed (close code 4500)"),
            (
                4502,
                "nothing on 5\x1b[2J",
                "nothing on 5[2J (close code 4502)",
            ),
            (4999, "", "does not say why (close code 4999)"),
        ] {
            match closed(Some(code), reason) {
                Ending::Broken(why) => assert!(why.contains(expected), "{why}"),
                other => panic!("{code}: {other:?}"),
            }
        }
    }
}
