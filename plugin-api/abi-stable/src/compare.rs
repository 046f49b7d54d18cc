//! Holds the layouts that a library carries against those of this crate.

use crate::PluginModuleRef;
use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    AbiInstability, AbiInstabilityError, check_layout_compatibility,
};
use abi_stable::library::{LibHeader, LibraryError, lib_header_from_path};
use abi_stable::type_layout::{TLFieldOrFunction, TypeLayout};
use paceline_plugin_api::abi::ENTRY_SYMBOL;
use std::ffi::c_void;
use std::path::Path;

/// Why a library's layouts are not this program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutDifference {
    /// The library cannot be loaded.
    #[error("cannot be loaded: {0}")]
    Unloadable(String),
    /// The library carries no layouts. That is no fault: it need not.
    #[error("carries no layouts to compare")]
    NotCarried,
    /// The layouts are described in a way that this program cannot read.
    #[error("carries layouts that cannot be read: {0}")]
    Unreadable(String),
    /// A type differs.
    #[error("`{place}` {difference}{}", more(*others))]
    Type {
        /// The type, and the field of it.
        place: String,
        /// What is different there.
        difference: String,
        /// Number of other differences.
        others: usize,
    },
    /// The root module belongs to another entry than the library's symbol.
    #[error("hands over another entry than its symbol `{ENTRY_SYMBOL}`")]
    OtherEntry,
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", and there is one more difference".to_owned(),
        others => format!(", and there are {others} more differences"),
    }
}

/// Compares the layouts that a library carries with those that this program was built with. Loads the library, which
/// stays loaded: to be called for files that may be run.
///
/// # Errors
/// The first difference, in one line; also that there are no layouts to compare.
pub fn compare(path: impl AsRef<Path>) -> Result<(), LayoutDifference> {
    let path = path.as_ref();
    let entry = entry_symbol(path)?;
    let header = header(path)?;
    let carried =
        header.layout().ok_or_else(|| LayoutDifference::Unreadable("they were left out".to_owned()))?;
    check(<PluginModuleRef as StableAbi>::LAYOUT, carried)?;
    // Does the same check again, and that of the version.
    let module = header.init_root_module::<PluginModuleRef>().map_err(unreadable)?;
    if entry.is_some_and(|entry| module.entry() as *const c_void != entry) {
        return Err(LayoutDifference::OtherEntry);
    }
    Ok(())
}

/// Loads the library so that missing symbols show now (`abi_stable` would find them at their first call, which ends the
/// process), and finds its C entry.
fn entry_symbol(path: &Path) -> Result<Option<*const c_void>, LayoutDifference> {
    #[cfg(unix)]
    // SAFETY: runs the library's initialisers; the caller vouches for the file.
    let library = unsafe {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map(libloading::Library::from)
    };
    #[cfg(not(unix))]
    // SAFETY: as above.
    let library = unsafe { libloading::Library::new(path) };
    let library = library.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        LayoutDifference::Unloadable(format!("{error}{}", cause.unwrap_or_default()))
    })?;
    // SAFETY: only the address of the symbol is taken.
    let entry = unsafe { library.get::<*const c_void>(ENTRY_SYMBOL.as_bytes()) }.ok().map(|symbol| *symbol);
    std::mem::forget(library);
    Ok(entry)
}

fn header(path: &Path) -> Result<&'static LibHeader, LayoutDifference> {
    lib_header_from_path(path).map_err(|error| match error {
        LibraryError::GetSymbolError { .. } => LayoutDifference::NotCarried,
        other => unreadable(other),
    })
}

/// `abi_stable` explains itself on thousands of lines, of which the first that says something must do.
fn unreadable(error: LibraryError) -> LayoutDifference {
    let text = error.to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason");
    LayoutDifference::Unreadable(line.chars().take(120).collect())
}

fn check(expected: &'static TypeLayout, carried: &'static TypeLayout) -> Result<(), LayoutDifference> {
    let Err(errors) = check_layout_compatibility(expected, carried) else { return Ok(()) };
    // The difference lies where the checker got deepest; around it everything that contains it differs too.
    let deepest = errors.errors.iter().max_by_key(|error| error.stack_trace.len());
    let Some(deepest) = deepest else {
        return Err(LayoutDifference::Unreadable("without a reason".to_owned()));
    };
    let contains = |error: &AbiInstabilityError| {
        deepest.stack_trace.starts_with(&error.stack_trace)
            && error.stack_trace.len() < deepest.stack_trace.len()
    };
    let others = errors.errors.iter().filter(|error| !contains(error)).count() - 1;
    let difference = deepest.errs.iter().map(describe).next().unwrap_or_else(|| "differs".to_owned());
    Err(LayoutDifference::Type { place: place(deepest), difference, others })
}

/// The type in which the innermost field lies, and the field.
fn place(error: &AbiInstabilityError) -> String {
    let fields: Vec<&TLFieldOrFunction> = error.stack_trace.iter().map(|pair| &pair.expected).collect();
    let (names, last) = match fields.as_slice() {
        [] => return "the module".to_owned(),
        [.., TLFieldOrFunction::Field(owner), last] => (owner.layout().name(), last),
        [.., last] => ("the module", last),
    };
    match last {
        TLFieldOrFunction::Field(field) => format!("{names}.{}", field.name()),
        TLFieldOrFunction::Function(_) => format!("{names}: a function"),
    }
}

fn describe(error: &AbiInstability) -> String {
    match error {
        AbiInstability::Size(it) => format!("has {} bytes instead of {}", it.found, it.expected),
        AbiInstability::Alignment(it) => format!("is aligned to {} instead of {}", it.found, it.expected),
        AbiInstability::Name(it) => format!("is `{}` instead of `{}`", it.found, it.expected),
        AbiInstability::MismatchedPrimitive(it) => {
            format!("is {:?} instead of {:?}", it.found, it.expected)
        }
        AbiInstability::FieldCountMismatch(it) => {
            format!("has {} fields instead of {}", it.found, it.expected)
        }
        AbiInstability::UnexpectedField(it) => {
            format!("has the field `{}` in place of `{}`", it.found.name(), it.expected.name())
        }
        other => {
            // The name of the kind of difference.
            let text = format!("{other:?}");
            format!("differs ({})", text.split(['(', ' ', '{']).next().unwrap_or_default())
        }
    }
}
