//! `ONEAPI_DEVICE_SELECTOR`, the variable by which programs on Intel GPUs are told their devices: terms `backend:devices`,
//! separated by semicolons; a term with `!` in front takes devices away. Whatever cannot be obeyed is refused, not passed over.

/// The variable.
pub(crate) const VARIABLE: &str = "ONEAPI_DEVICE_SELECTOR";

/// Which driver a device is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    LevelZero,
    OpenCl,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gpu,
    Cpu,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    Of(Kind),
    Number(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    takes_away: bool,
    /// The drivers that it is about; none for one that this backend does not use.
    apis: Vec<Api>,
    devices: Vec<Which>,
}

/// Which devices are used. Without the variable: all GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    terms: Vec<Term>,
}

impl Selector {
    /// What the environment says.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of_environment() -> Result<Self, String> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::default()),
            Some(text) => Self::parse(&text.to_string_lossy()),
        }
    }

    /// Reads the variable's value.
    ///
    /// # Errors
    /// A sentence about the term that cannot be read or obeyed, and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let terms = text.split(';').map(str::trim).filter(|term| !term.is_empty());
        let terms: Vec<Term> = terms.map(Term::parse).collect::<Result<_, _>>()?;
        match terms.is_empty() && !text.is_empty() {
            true => Err(format!("{VARIABLE} is `{text}`, which selects nothing")),
            false => Ok(Self { terms }),
        }
    }

    /// True if a device is used: number `number` of all of its driver, of this kind.
    pub fn takes(&self, api: Api, number: u32, kind: Kind) -> bool {
        let fits = |term: &Term| {
            term.apis.contains(&api)
                && term.devices.iter().any(|which| match which {
                    Which::All => true,
                    Which::Of(wanted) => *wanted == kind,
                    Which::Number(wanted) => *wanted == number,
                })
        };
        let (away, given): (Vec<&Term>, Vec<&Term>) = self.terms.iter().partition(|term| term.takes_away);
        let is_given = match given.is_empty() {
            true => kind == Kind::Gpu,
            false => given.into_iter().any(fits),
        };
        is_given && !away.into_iter().any(fits)
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            format!(
                "{VARIABLE}: `{text}` {why}; write for example `level_zero:gpu`, `opencl:*` or `level_zero:0,1`"
            )
        };
        let (takes_away, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (backend, devices) = rest.split_once(':').ok_or_else(|| refused("has no colon"))?;
        let apis = match backend.trim().to_ascii_lowercase().as_str() {
            "*" => vec![Api::LevelZero, Api::OpenCl],
            "level_zero" => vec![Api::LevelZero],
            "opencl" => vec![Api::OpenCl],
            // Backends of other makers' devices, which other programs may mean.
            "cuda" | "hip" | "native_cpu" | "offload" => Vec::new(),
            _ => return Err(refused("names a backend that is not known")),
        };
        let device = |word: &str| match word.trim().to_ascii_lowercase().as_str() {
            "*" => Ok(Which::All),
            "gpu" => Ok(Which::Of(Kind::Gpu)),
            "cpu" => Ok(Which::Of(Kind::Cpu)),
            "fpga" | "acc" => Ok(Which::Of(Kind::Other)),
            word if word.contains('.') => {
                Err(refused("names a part of a device, and this backend uses whole devices"))
            }
            word => word
                .parse()
                .map(Which::Number)
                .map_err(|_| refused("names a device that is neither a number nor `gpu`, `cpu` or `*`")),
        };
        Ok(Self { takes_away, apis, devices: devices.split(',').map(device).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Api::{LevelZero, OpenCl};
    use Kind::{Cpu, Gpu};

    /// Which of two GPUs of each driver and of a CPU of OpenCL are used.
    fn taken(text: &str) -> Vec<(Api, u32)> {
        let all =
            [(LevelZero, 0, Gpu), (LevelZero, 1, Gpu), (OpenCl, 0, Gpu), (OpenCl, 1, Gpu), (OpenCl, 2, Cpu)];
        let selector = Selector::parse(text).unwrap();
        let taken = all.into_iter().filter(|&(api, number, kind)| selector.takes(api, number, kind));
        taken.map(|(api, number, _)| (api, number)).collect()
    }

    #[test]
    fn terms_give_and_take_devices() {
        let gpus = [(LevelZero, 0), (LevelZero, 1), (OpenCl, 0), (OpenCl, 1)];
        assert_eq!(taken(""), gpus);
        assert_eq!(taken("*:gpu"), gpus);
        assert_eq!(taken("opencl:*"), [(OpenCl, 0), (OpenCl, 1), (OpenCl, 2)]);
        assert_eq!(taken("opencl:cpu"), [(OpenCl, 2)]);
        assert_eq!(taken("level_zero:1"), [(LevelZero, 1)]);
        assert_eq!(taken("LEVEL_ZERO:0 ; opencl:1,2"), [(LevelZero, 0), (OpenCl, 1), (OpenCl, 2)]);
        assert_eq!(taken("!level_zero:*"), [(OpenCl, 0), (OpenCl, 1)]);
        assert_eq!(taken("*:*;!*:0"), [(LevelZero, 1), (OpenCl, 1), (OpenCl, 2)]);
        assert_eq!(taken("cuda:*"), []);
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused() {
        for (text, word) in [
            ("gpu", "colon"),
            ("metal:gpu", "backend"),
            ("level_zero:0.1", "part"),
            ("level_zero:*.*", "part"),
            ("opencl:first", "number"),
            ("opencl:", "number"),
            (";", "nothing"),
        ] {
            let error = Selector::parse(text).unwrap_err();
            assert!(error.contains(word) && error.contains(VARIABLE), "{text}: {error}");
        }
    }
}
