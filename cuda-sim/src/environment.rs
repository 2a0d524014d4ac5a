#![doc = include_str!("environment.md")]

use crate::Profile;
use crate::fault::Fault;
use crate::profile::Kernels;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// An environment variable of the software driver. The table of [this page](self) says what each one selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variable {
    /// `CUDA_SIM`
    Profile,
    /// `CUDA_SIM_KERNELS`
    Kernels,
    /// `CUDA_SIM_RACES`
    Races,
    /// `CUDA_SIM_CHECKS`
    Checks,
    /// `CUDA_SIM_LENIENT`
    Lenient,
    /// `CUDA_SIM_LEAKS`
    Leaks,
    /// `CUDA_SIM_COVERAGE`
    Coverage,
    /// `CUDA_SIM_NCCL_FOLDER`
    NcclFolder,
    /// `CUDA_SIM_FAULTS`
    Faults,
    /// `CUDA_SIM_ACCOUNT`
    Account,
}

impl Variable {
    /// All variables.
    pub const ALL: [Self; 10] = [
        Self::Profile,
        Self::Kernels,
        Self::Races,
        Self::Checks,
        Self::Lenient,
        Self::Leaks,
        Self::Coverage,
        Self::NcclFolder,
        Self::Faults,
        Self::Account,
    ];

    /// The variables that select modes of a profile.
    const MODES: [Self; 7] = [
        Self::Kernels,
        Self::Races,
        Self::Checks,
        Self::Lenient,
        Self::Leaks,
        Self::Coverage,
        Self::NcclFolder,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Profile => "CUDA_SIM",
            Self::Kernels => "CUDA_SIM_KERNELS",
            Self::Races => "CUDA_SIM_RACES",
            Self::Checks => "CUDA_SIM_CHECKS",
            Self::Lenient => "CUDA_SIM_LENIENT",
            Self::Leaks => "CUDA_SIM_LEAKS",
            Self::Coverage => "CUDA_SIM_COVERAGE",
            Self::NcclFolder => "CUDA_SIM_NCCL_FOLDER",
            Self::Faults => "CUDA_SIM_FAULTS",
            Self::Account => "CUDA_SIM_ACCOUNT",
        }
    }

    /// Returns the value in the environment of this process, unless it is empty. It may not be valid.
    pub fn value(self) -> Option<OsString> {
        std::env::var_os(self.name()).filter(|value| !value.is_empty())
    }

    /// Checks a value that is not empty.
    ///
    /// # Errors
    /// The value is not one that the variable can have.
    pub fn check(self, value: impl AsRef<OsStr>) -> Result<(), InvalidVariable> {
        self.select(value.as_ref(), &mut Environment::default())
    }

    /// Reads the variable, and changes the settings that it selects.
    fn read(self, settings: &mut Environment) -> Result<(), InvalidVariable> {
        match self.value() {
            Some(value) => self.select(&value, settings),
            None => Ok(()),
        }
    }

    /// Changes the settings that a value selects. This is the only code that gives the values a meaning.
    fn select(self, value: &OsStr, settings: &mut Environment) -> Result<(), InvalidVariable> {
        let text = value.to_string_lossy();
        let quoted = || format!("{text:?}");
        let done = match self {
            Self::Profile => text
                .parse()
                .map(|profile| settings.profile = profile)
                .map_err(|why| why.to_string()),
            Self::Kernels => match &*text {
                "interpret" => Ok(Kernels::Interpret),
                "registered" => Ok(Kernels::Registered),
                "ignore" => Ok(Kernels::Ignore),
                _ => {
                    Err(format!("{} is not \"interpret\", \"registered\" or \"ignore\"", quoted()))
                }
            }
            .map(|kernels| settings.profile.kernels = kernels),
            Self::Checks => text
                .parse()
                .map(|checks| settings.profile.kernel_checks = checks)
                .map_err(|why: crate::checks::check::UnknownCheck| why.to_string()),
            Self::Races | Self::Lenient | Self::Leaks => match &*text {
                "0" => Ok(()),
                "1" => {
                    match self {
                        Self::Races => settings.profile.race_detection = true,
                        Self::Leaks => settings.profile.leak_sites = true,
                        _ => settings.profile.lenient_misuse = true,
                    }
                    Ok(())
                }
                _ => Err(format!("{} is neither \"0\" nor \"1\"", quoted())),
            },
            Self::Coverage => {
                let file = Path::new(value);
                let is_in_folder = file.parent().is_some_and(Path::is_dir);
                if file.is_absolute() && is_in_folder && !file.is_dir() {
                    settings.profile.coverage = true;
                    settings.profile.coverage_file = Some(file.to_owned());
                    Ok(())
                } else {
                    Err(format!(
                        "{} is not the absolute path of a file in a folder that exists",
                        quoted()
                    ))
                }
            }
            Self::NcclFolder => {
                let folder = Path::new(value);
                if folder.is_absolute() && folder.is_dir() {
                    settings.profile.nccl_folder = Some(folder.to_owned());
                    Ok(())
                } else {
                    Err(format!("{} is not the absolute path of a folder that exists", quoted()))
                }
            }
            Self::Faults => text
                .split(',')
                .map(|fault| fault.trim().parse())
                .collect::<Result<_, _>>()
                .map(|faults| settings.faults = faults)
                .map_err(|why: crate::fault::InvalidFault| why.to_string()),
            Self::Account if text == "-" => {
                settings.account = Some(Account::Stderr);
                Ok(())
            }
            Self::Account if Path::new(value).is_absolute() && Path::new(value).is_dir() => {
                settings.account = Some(Account::Folder(value.into()));
                Ok(())
            }
            Self::Account => Err(format!(
                "{} is neither \"-\" nor the absolute path of a folder that exists",
                quoted()
            )),
        };
        done.map_err(|reason| InvalidVariable { variable: self, reason })
    }
}

/// The settings that the environment of this process selects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Environment {
    /// The profile, with its modes.
    pub profile: Profile,
    /// The calls of the process that fail.
    pub faults: Vec<Fault>,
    /// Where the account of the process is written.
    pub account: Option<Account>,
    /// The variables with a value that is not valid, in the order of [`Variable::ALL`]. The other fields are
    /// as if these variables were not set.
    pub invalid: Vec<InvalidVariable>,
}

impl Environment {
    /// Reads all variables.
    pub fn read() -> Self {
        let mut its = Self::default();
        for variable in Variable::ALL {
            if let Err(why) = variable.read(&mut its) {
                its.invalid.push(why);
            }
        }
        its
    }
}

/// The settings if no variable is set.
impl Default for Environment {
    fn default() -> Self {
        Self { profile: Profile::h200(), faults: Vec::new(), account: None, invalid: Vec::new() }
    }
}

/// Where the account of a process is written when it exits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Account {
    /// On stderr.
    Stderr,
    /// In a file in this folder.
    Folder(PathBuf),
}

impl Profile {
    /// Turns on the modes that environment variables select: `CUDA_SIM_KERNELS`
    /// ([`with_kernels`](Self::with_kernels)), `CUDA_SIM_RACES`
    /// ([`with_race_detection`](Self::with_race_detection)), `CUDA_SIM_CHECKS`
    /// ([`with_kernel_checks`](Self::with_kernel_checks)), `CUDA_SIM_LENIENT`
    /// ([`with_lenient_misuse`](Self::with_lenient_misuse)), `CUDA_SIM_LEAKS`
    /// ([`with_leak_sites`](Self::with_leak_sites)), `CUDA_SIM_COVERAGE`
    /// ([`with_coverage_file`](Self::with_coverage_file)) and `CUDA_SIM_NCCL_FOLDER`
    /// ([`with_nccl_folder`](Self::with_nccl_folder)).
    ///
    /// # Errors
    /// The value of one of these variables is not valid. See the [table](crate::environment).
    pub fn with_environment(self) -> Result<Self, InvalidVariable> {
        let mut settings = Environment { profile: self, ..Environment::default() };
        for mode in Variable::MODES {
            mode.read(&mut settings)?;
        }
        Ok(settings.profile)
    }
}

/// The value of an environment variable that is not valid.
///
/// The display form names the variable, the value, and the values that it can have.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidVariable {
    /// The variable.
    pub variable: Variable,
    /// The value, and the values that the variable can have, in one line.
    pub reason: String,
}

impl fmt::Display for InvalidVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable.name(), self.reason)
    }
}

cuda_sys::debug_text! { struct InvalidVariable { variable, reason } }

impl std::error::Error for InvalidVariable {}

#[cfg(test)]
mod tests {
    use super::{Account, Environment, Variable};
    use std::ffi::OsStr;

    fn selected(variable: Variable, value: &str) -> Result<Environment, String> {
        let mut its = Environment::default();
        let done = variable.select(OsStr::new(value), &mut its);
        done.map(|()| its).map_err(|why| why.to_string())
    }

    #[test]
    fn a_mode_is_0_or_1_and_nothing_else() {
        let names = [
            (Variable::Races, "CUDA_SIM_RACES"),
            (Variable::Lenient, "CUDA_SIM_LENIENT"),
            (Variable::Leaks, "CUDA_SIM_LEAKS"),
        ];
        for (own, (variable, name)) in names.into_iter().enumerate() {
            for (value, expected) in [("0", false), ("1", true)] {
                let its = selected(variable, value).expect("a valid value").profile;
                let modes = [its.race_detection, its.lenient_misuse, its.leak_sites];
                let expected = [0, 1, 2].map(|mode| expected && mode == own);
                assert_eq!(modes, expected);
            }
            for wrong in ["typo", "true", "2", " 1"] {
                let why = selected(variable, wrong).expect_err("no valid value");
                let expected = format!("{name}: {wrong:?} is neither \"0\" nor \"1\"");
                assert_eq!(why, expected);
            }
        }
    }

    #[test]
    fn checks_are_names_that_are_separated_by_commas() {
        let its = selected(Variable::Checks, "memcheck,synccheck").expect("a valid value").profile;
        assert_eq!(its.kernel_checks.to_string(), "memcheck,synccheck");
        let why = selected(Variable::Checks, "memcheck,sync").expect_err("no valid value");
        assert!(
            why.starts_with("CUDA_SIM_CHECKS: no check \"sync\": the checks are memcheck"),
            "{why}"
        );
    }

    #[test]
    fn the_account_goes_to_stderr_or_to_a_folder_that_exists() {
        let account = |value| selected(Variable::Account, value).map(|its| its.account);
        assert_eq!(account("-"), Ok(Some(Account::Stderr)));
        for wrong in ["stderr", "/no folder"] {
            let why = account(wrong).expect_err("no folder");
            let reason = "is neither \"-\" nor the absolute path of a folder that exists";
            assert_eq!(why, format!("CUDA_SIM_ACCOUNT: {wrong:?} {reason}"));
        }
        #[cfg(unix)]
        assert_eq!(account("/"), Ok(Some(Account::Folder("/".into()))));
    }

    #[test]
    fn coverage_needs_a_file_in_a_folder_that_exists() {
        let folder = std::env::temp_dir();
        let file = folder.join("coverage.info");
        let its = selected(Variable::Coverage, &file.to_string_lossy()).expect("a valid value");
        assert_eq!(its.profile, Environment::default().profile.with_coverage_file(file));
        for wrong in ["coverage.info", "/no folder/coverage.info", &*folder.to_string_lossy()] {
            let why = selected(Variable::Coverage, wrong).map(drop).expect_err("no file");
            let reason = "is not the absolute path of a file in a folder that exists";
            assert_eq!(why, format!("CUDA_SIM_COVERAGE: {wrong:?} {reason}"));
        }
    }

    #[test]
    fn the_folder_of_ranks_exists() {
        let folder = std::env::temp_dir();
        let its = selected(Variable::NcclFolder, &folder.to_string_lossy()).expect("a folder");
        assert_eq!(its.profile, Environment::default().profile.with_nccl_folder(folder));
        for wrong in ["ranks", "/no folder"] {
            let why = selected(Variable::NcclFolder, wrong).map(drop).expect_err("no folder");
            let reason = "is not the absolute path of a folder that exists";
            assert_eq!(why, format!("CUDA_SIM_NCCL_FOLDER: {wrong:?} {reason}"));
        }
    }

    #[test]
    fn a_check_agrees_with_the_selection() {
        assert_eq!(Variable::Profile.check("h200@12.4"), Ok(()));
        let why = Variable::Faults.check("cuNever").expect_err("no fault");
        assert_eq!(why.variable, Variable::Faults);
        assert!(why.reason.starts_with("no fault cuNever: "), "{why}");
    }
}
