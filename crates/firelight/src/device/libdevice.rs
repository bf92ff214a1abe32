//! `libdevice.10.bc`: NVIDIA's mathematical functions, which CubeCL links into the kernels that it compiles for CUDA. Without
//! the file the first kernel that needs an exponential fails, long after a device was chosen.

use std::env;
use std::path::{Path, PathBuf};

/// Where a CUDA toolkit lies if `CUDA_PATH` does not say so, in the order in which CubeCL 0.11 looks.
const ROOTS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// The file below the toolkit's folder.
const FILE: &str = "nvvm/libdevice/libdevice.10.bc";

/// What is missing, in words; none if the file is there.
pub(super) fn missing() -> Option<String> {
    missing_from(env::var_os("CUDA_PATH").map(PathBuf::from), &ROOTS.map(PathBuf::from))
}

fn missing_from(named: Option<PathBuf>, roots: &[PathBuf]) -> Option<String> {
    let has_file = |root: &Path| root.join(FILE).is_file();
    match named {
        Some(root) if has_file(&root) => None,
        Some(root) => Some(format!("{} (CUDA_PATH is {})", root.join(FILE).display(), root.display())),
        None if roots.iter().any(|root| has_file(root)) => None,
        None => Some(format!("{FILE} (CUDA_PATH is not set, and no toolkit lies in {})", ROOTS.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_is_looked_for_where_cuda_path_says() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().to_path_buf();
        let text = missing_from(Some(root.clone()), std::slice::from_ref(&root)).unwrap();
        assert!(text.contains("libdevice.10.bc") && text.contains("CUDA_PATH is /"), "{text}");
        assert!(missing_from(None, std::slice::from_ref(&root)).is_some_and(|text| text.contains("not set")));

        fs::create_dir_all(root.join("nvvm/libdevice")).unwrap();
        fs::write(root.join(FILE), "").unwrap();
        assert_eq!(missing_from(Some(root.clone()), &[]), None);
        assert_eq!(missing_from(None, std::slice::from_ref(&root)), None);
        assert!(
            missing_from(Some(root.join("elsewhere")), &[root]).is_some(),
            "CUDA_PATH alone counts where it is set"
        );
    }
}
