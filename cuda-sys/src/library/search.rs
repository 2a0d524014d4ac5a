//! The places where a library of a toolkit or of a Python package may be installed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// A library of NVIDIA that the dynamic linker alone may not find, as its packages name it. The crates of NVRTC
/// and NCCL pass its [`candidates`](Self::candidates) to [`Library::with_search`](crate::Library::with_search).
///
/// The places are, in this order:
///
/// 1. The file that the environment variable names. If it is set, nothing else is tried.
/// 2. The dynamic linker, which knows `LD_LIBRARY_PATH`, the system's folders, and libraries that the process
///    has already opened.
/// 3. The toolkit that `CUDA_HOME` or `CUDA_PATH` names.
/// 4. The active conda environment (`CONDA_PREFIX`).
/// 5. The packages from PyPI, in the active virtual environment (`VIRTUAL_ENV`), in `PYTHONPATH`, in the
///    installations of the `python3` and `python` in `PATH`, and in the packages of the user.
/// 6. The usual folders of toolkits: `/usr/local/cuda`, `/usr/local/cuda-*`, `/opt/cuda`, and on Windows
///    `C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA`.
#[derive(Clone, Copy, Debug)]
pub struct LibrarySearch {
    /// The environment variable that names the file to use.
    pub variable: &'static str,
    /// The file names, newest version first. The last one has no version.
    pub files: &'static [&'static str],
    /// The folders of the packages on PyPI, in `site-packages`.
    pub packages: &'static [&'static str],
}

/// The folders of libraries in a toolkit or a PyPI package.
const LIBRARY_FOLDERS: &[&str] = if cfg!(windows) {
    &["bin/x64", "bin/x86_64", "bin"]
} else if cfg!(target_arch = "aarch64") {
    &["lib64", "targets/sbsa-linux/lib", "targets/aarch64-linux/lib", "lib"]
} else {
    &["lib64", "targets/x86_64-linux/lib", "lib"]
};

impl LibrarySearch {
    /// Returns the files to try, in order.
    #[inline]
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(path) = variable(self.variable) {
            return vec![path];
        }
        let mut candidates: Vec<PathBuf> = self.files.iter().map(PathBuf::from).collect();
        let mut roots: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].map(variable).into_iter().flatten().collect();
        roots.extend(variable("CONDA_PREFIX").map(|prefix| match cfg!(windows) {
            true => prefix.join("Library"),
            false => prefix,
        }));
        for packages in python_packages() {
            roots.extend(self.packages.iter().map(|package| packages.join(package)));
        }
        roots.extend(toolkits());
        let mut seen = Vec::new();
        for root in roots {
            if !seen.contains(&root) {
                candidates.extend(self.in_toolkit(&root));
                seen.push(root);
            }
        }
        candidates
    }

    /// Returns the files that exist in a toolkit or package. If none exists, returns the path of the
    /// newest version in its first folder, so that an error mentions the place.
    #[inline]
    fn in_toolkit(&self, root: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in LIBRARY_FOLDERS {
            let files = self.files.iter().map(|name| root.join(folder).join(name));
            found.extend(files.filter(|path| path.is_file()));
        }
        if found.is_empty() {
            found.push(root.join(LIBRARY_FOLDERS[0]).join(self.files[0]));
        }
        found
    }
}

/// Returns an environment variable that is not empty.
#[inline]
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the folders of packages of the Python installations that this process would use.
#[inline]
fn python_packages() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut prefixes: Vec<PathBuf> = variable("VIRTUAL_ENV").into_iter().collect();
    folders.extend(
        env::split_paths(&env::var_os("PYTHONPATH").unwrap_or_default())
            .filter(|path| path.is_absolute()),
    );
    prefixes.extend(variable("CONDA_PREFIX"));
    let path = env::var_os("PATH").unwrap_or_default();
    for program in ["python3", "python", "python.exe"] {
        let mut places = env::split_paths(&path).map(|folder| folder.join(program));
        let Some(python) = places.find(|file| file.is_absolute() && file.is_file()) else {
            continue;
        };
        // A virtual environment refers to the installation that it was created from by a link.
        let target = fs::canonicalize(&python).ok();
        prefixes.extend([Some(python), target].into_iter().flatten().filter_map(prefix));
    }
    for prefix in prefixes {
        folders.push(prefix.join("Lib/site-packages"));
        for (parent, _) in versions(&prefix.join("lib"), "python") {
            folders.push(parent.join("site-packages"));
            folders.push(parent.join("dist-packages"));
        }
    }
    if let Some(home) = variable("HOME") {
        for (parent, _) in versions(&home.join(".local/lib"), "python") {
            folders.push(parent.join("site-packages"));
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Returns the installation of a Python program: `/usr` for `/usr/bin/python3`.
#[inline]
fn prefix(python: PathBuf) -> Option<PathBuf> {
    let folder = python.parent()?;
    match folder.file_name() == Some(OsStr::new("bin")) {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder.to_owned()),
    }
}

/// Returns the folders where toolkits are usually installed, newest first.
#[inline]
fn toolkits() -> Vec<PathBuf> {
    if cfg!(windows) {
        let programs =
            env::var_os("ProgramFiles").unwrap_or_else(|| OsString::from("C:\\Program Files"));
        let parent = Path::new(&programs).join("NVIDIA GPU Computing Toolkit\\CUDA");
        return versions(&parent, "v").into_iter().map(|(folder, _)| folder).collect();
    }
    let mut folders = vec![PathBuf::from("/usr/local/cuda")];
    folders
        .extend(versions(Path::new("/usr/local"), "cuda-").into_iter().map(|(folder, _)| folder));
    folders.push(PathBuf::from("/opt/cuda"));
    folders
}

/// Returns the folders in `parent` whose name is `prefix` and a version, with their versions, newest first.
#[inline]
fn versions(parent: &Path, prefix: &str) -> Vec<(PathBuf, Vec<u32>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(version) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else {
            continue;
        };
        let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
        if let Ok(numbers) = numbers {
            found.push((entry.path(), numbers));
        }
    }
    found.sort_by(|(_, a), (_, b)| b.cmp(a));
    found
}

#[cfg(test)]
mod tests {
    use super::{LIBRARY_FOLDERS, LibrarySearch, versions};
    use std::fs;
    use std::path::PathBuf;

    const COMPILER: LibrarySearch = LibrarySearch {
        variable: "CUDA_NVRTC_LIBRARY",
        files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
        packages: &["nvidia/cu13", "nvidia/cuda_nvrtc"],
    };

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("cuda-sys-search-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("creating a folder");
        folder
    }

    #[test]
    fn versions_are_compared_as_numbers_newest_first() {
        let parent = folder("versions");
        for name in ["cuda-9.2", "cuda-13.0", "cuda-12.10", "cuda-12.9", "cuda-latest", "cuda"] {
            fs::create_dir(parent.join(name)).expect("creating a folder");
        }
        let found: Vec<PathBuf> =
            versions(&parent, "cuda-").into_iter().map(|(path, _)| path).collect();
        let expected = ["cuda-13.0", "cuda-12.10", "cuda-12.9", "cuda-9.2"];
        assert_eq!(found, expected.map(|name| parent.join(name)));
        fs::remove_dir_all(parent).expect("removing the folder");
    }

    #[test]
    fn a_toolkit_offers_its_libraries_or_the_place_where_they_should_be() {
        let root = folder("toolkit");
        let wanted = root.join(LIBRARY_FOLDERS[0]).join(COMPILER.files[0]);
        assert_eq!(COMPILER.in_toolkit(&root), std::slice::from_ref(&wanted));
        assert_eq!(COMPILER.in_toolkit(&root.join("absent")).len(), 1);

        let old = root.join("lib").join(COMPILER.files[1]);
        let newest = wanted;
        for file in [&old, &newest] {
            fs::create_dir_all(file.parent().expect("a folder")).expect("creating a folder");
            fs::write(file, "").expect("writing a file");
        }
        if !cfg!(windows) {
            assert_eq!(COMPILER.in_toolkit(&root), [newest, old]);
        }
        fs::remove_dir_all(root).expect("removing the folder");
    }
}
