//! Which names below a root are chosen: patterns as gitignore has them, some that include and some that exclude.
//!
//! Sources: gitignore(5), "PATTERN FORMAT"; git-sparse-checkout(1) for lists that include: there, too, a name that no
//! pattern matches shares the fate of its directory.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::{Error, Kind, Result};

/// What a [`Filter`] says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is chosen; a directory with all below it that is not excluded.
    Keep,
    /// Neither it nor anything below it is chosen.
    Skip,
    /// A directory that is not chosen itself, and may lead to something that is.
    Descend,
}

/// A choice among the names below a root.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Option<List>,
    exclude: Option<List>,
}

impl Filter {
    /// Reads the patterns. Without any, everything is chosen; what `excludes` matches is not, whatever includes it.
    ///
    /// In each list the last pattern that matches decides, and `!` turns one around. What lies in an excluded
    /// directory cannot be had back; what lies in an included one can be left out.
    ///
    /// # Errors
    /// `Malformed`, naming the pattern that is none or can match nothing; too many, or too long, patterns.
    pub fn new(includes: &[String], excludes: &[String]) -> Result<Self> {
        let length: usize = includes.iter().chain(excludes).map(String::len).sum();
        if length > MOST_BYTES {
            return Err(Kind::Malformed.told(format!(
                "include and exclude have more than {MOST_BYTES} bytes together"
            )));
        }
        let include = List::parse("include", includes)?;
        if let Some(list) = &include
            && list.rules.iter().all(|rule| rule.negated)
        {
            return Err(Kind::Malformed.told(
                "include has patterns with ! only, which choose nothing; use exclude to leave out",
            ));
        }
        Ok(Self {
            include,
            exclude: List::parse("exclude", excludes)?,
        })
    }

    /// True when everything is chosen.
    pub fn is_open(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }

    /// The verdict on the root itself.
    pub fn root(&self) -> Verdict {
        match self.include {
            None => Verdict::Keep,
            Some(_) => Verdict::Descend,
        }
    }

    /// Judges a name, relative to the root with its components joined by single slashes, whose directory has been judged.
    pub fn judge_in(&self, directory: Verdict, path: &[u8], is_dir: bool) -> Verdict {
        if directory == Verdict::Skip {
            return directory;
        }
        if self.is_open() {
            return Verdict::Keep;
        }
        let candidate = Candidate::from_bytes(path);
        if let Some(exclude) = &self.exclude
            && exclude.last(&candidate, is_dir) == Some(true)
        {
            return Verdict::Skip;
        }
        let Some(include) = &self.include else {
            return Verdict::Keep;
        };
        let kept = include.last(&candidate, is_dir);
        match kept.unwrap_or(directory == Verdict::Keep) {
            true => Verdict::Keep,
            false if is_dir && include.may_lead(&candidate) => Verdict::Descend,
            false => Verdict::Skip,
        }
    }
}

/// Patterns of one kind, in order.
#[derive(Clone, Debug)]
struct List {
    globs: GlobSet,
    rules: Vec<Rule>,
    /// Directories above what may match; `None` when a match may lie anywhere.
    leading: Option<GlobSet>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    negated: bool,
    only_dirs: bool,
}

impl List {
    fn parse(key: &'static str, patterns: &[String]) -> Result<Option<Self>> {
        if patterns.is_empty() {
            return Ok(None);
        }
        if patterns.len() > MOST {
            return Err(Kind::Malformed.told(format!("{key} is given more than {MOST} times")));
        }
        let mut rules = Vec::new();
        let mut globs = GlobSetBuilder::new();
        let mut leading = Some(GlobSetBuilder::new());
        for text in patterns {
            let wrong = |what: &str| Kind::Malformed.told(format!("{key} pattern {text:?} {what}"));
            let pattern = Pattern::parse(text).map_err(wrong)?;
            rules.push(pattern.rule);
            globs.add(glob(&pattern.whole()).map_err(|error| wrong("is no glob").because(error))?);
            if pattern.rule.negated {
                continue;
            }
            match (pattern.leading(), &mut leading) {
                (Some(above), Some(leading)) => {
                    for text in above {
                        let glob = glob(&text);
                        leading.add(glob.map_err(|error| wrong("is no glob").because(error))?);
                    }
                }
                _ => leading = None,
            }
        }
        let large = |error| too_large(key).because(error);
        Ok(Some(Self {
            globs: globs.build().map_err(large)?,
            rules,
            leading: leading
                .map(|globs| globs.build())
                .transpose()
                .map_err(large)?,
        }))
    }

    /// What the last pattern that matches says: true when it is one without `!`.
    fn last(&self, candidate: &Candidate<'_>, is_dir: bool) -> Option<bool> {
        let mut matched = Vec::new();
        self.globs.matches_candidate_into(candidate, &mut matched);
        let mut rules = matched.into_iter().rev().map(|index| self.rules[index]);
        let rule = rules.find(|rule| is_dir || !rule.only_dirs)?;
        Some(!rule.negated)
    }

    /// True when something below the directory may match.
    fn may_lead(&self, directory: &Candidate<'_>) -> bool {
        match &self.leading {
            None => true,
            Some(leading) => leading.is_match_candidate(directory),
        }
    }
}

/// A pattern, taken apart.
struct Pattern {
    rule: Rule,
    /// True when it is matched from the root on, not in every directory.
    anchored: bool,
    /// Its components, in the syntax of the glob crate.
    parts: Vec<String>,
}

impl Pattern {
    /// The error says what is wrong with it.
    fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        if text.len() > LONGEST {
            return Err("is longer than 1024 bytes");
        }
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (rooted, text) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (only_dirs, text) = match text.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let parts = text
            .split('/')
            .map(part)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self {
            rule: Rule { negated, only_dirs },
            anchored: rooted || parts.len() > 1,
            parts,
        })
    }

    /// The glob of what it matches.
    fn whole(&self) -> String {
        let joined = self.parts.join("/");
        match self.parts.last().is_some_and(|last| last == "**") {
            // All below a directory, not the directory.
            true if self.parts.len() > 1 => joined + "/*",
            _ if self.anchored => joined,
            _ => format!("**/{joined}"),
        }
    }

    /// The globs of all directories above what it matches; `None` when that can be any.
    fn leading(&self) -> Option<Vec<String>> {
        if !self.anchored || self.parts.first().is_some_and(|part| part == "**") {
            return None;
        }
        let mut globs = Vec::new();
        for depth in 1..self.parts.len() {
            let above = self.parts[..depth].join("/");
            if self.parts[depth] == "**" || depth == DEEPEST {
                globs.push(format!("{above}/**/*"));
                globs.push(above);
                break;
            }
            globs.push(above);
        }
        Some(globs)
    }
}

/// A component in the syntax of the glob crate, which has braces where gitignore has none.
fn part(text: &str) -> std::result::Result<String, &'static str> {
    if matches!(text, "" | "." | "..") {
        return Err("has an empty component, or one that is . or .., and can match nothing");
    }
    let mut part = String::with_capacity(text.len());
    let mut class = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match (class, letter) {
            _ if escaped => {
                escaped = false;
                part.push(letter);
                continue;
            }
            (None, '{' | '}') => part.push('\\'),
            (None, '\\') => escaped = true,
            (None, '[') => class = Some(at),
            (Some(_), '\\') => return Err("has a backslash in a class, which is not known here"),
            (Some(start), ']') if !is_inside(&text[start + 1..at]) => class = None,
            _ => {}
        }
        part.push(letter);
    }
    Ok(part)
}

/// True when a `]` behind `class`, the text since the `[`, does not end the class.
fn is_inside(class: &str) -> bool {
    let set = class.strip_prefix(['!', '^']).unwrap_or(class);
    let named = set
        .rfind("[:")
        .is_some_and(|at| !set[at..].contains(":]") && set.ends_with(':'));
    set.is_empty() || named
}

fn glob(text: &str) -> std::result::Result<globset::Glob, globset::Error> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
}

fn too_large(key: &str) -> Error {
    Kind::Malformed.told(format!("the {key} patterns are too large together"))
}

/// Patterns of one list at most.
const MOST: usize = 256;
/// Bytes of a pattern at most, and of all together.
const LONGEST: usize = 1024;
const MOST_BYTES: usize = 16 * 1024;
/// Components of a pattern that are looked at to know where its matches cannot be.
const DEEPEST: usize = 8;

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
