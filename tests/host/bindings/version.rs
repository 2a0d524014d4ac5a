//! `CudaVersion`: printing, parsing and comparing versions.

use cuda_sys::CudaVersion;

/// Returns many versions in ascending order.
fn versions() -> impl Iterator<Item = (u16, u16)> {
    let majors = (0..40).chain([99, 100, 999, 1000, u16::MAX]);
    majors.flat_map(|major| (0..=99).map(move |minor| (major, minor)))
}

#[test]
fn versions_print_and_parse_back() {
    for (major, minor) in versions() {
        let version = CudaVersion::new(major, minor);
        let text = version.to_string();
        assert_eq!(text, format!("{major}.{minor}"));
        assert_eq!(text.parse(), Ok(version));
        assert_eq!(format!("{version:?}"), format!("CudaVersion({text})"));
    }
}

#[test]
fn versions_use_the_numbers_of_the_driver() {
    assert_eq!(CudaVersion::new(12, 4).number(), 12040);
    assert_eq!(CudaVersion::new(6, 5).number(), 6050);
    for (major, minor) in versions() {
        let version = CudaVersion::new(major, minor);
        assert_eq!(version.major(), i32::from(major));
        assert_eq!(version.minor(), i32::from(minor));
        assert_eq!(CudaVersion::from_number(version.number()), version);
    }
}

#[test]
fn versions_compare_part_by_part() {
    let all: Vec<(u16, u16)> = versions().collect();
    for pair in all.windows(2) {
        let [lower, higher] = [pair[0], pair[1]].map(|(major, minor)| {
            // This is not the order of the text: 9.2 is less than 12.0.
            CudaVersion::new(major, minor)
        });
        assert!(lower < higher, "{lower} and {higher}");
        assert_eq!(lower.max(higher), higher);
        assert_ne!(lower, higher);
    }
}

#[test]
fn the_bindings_have_version_13_5() {
    assert_eq!(CudaVersion::BINDINGS, CudaVersion::new(13, 5));
}

#[test]
fn any_driver_number_can_be_printed() {
    // `from_number` does not check the number that a driver returns.
    for (number, text) in [
        (0, "0.0"),
        (1, "0.0"),
        (12_345, "12.34"),
        (i32::MAX, "2147483.64"),
        // These are not versions.
        (-1, "-1"),
        (-12_040, "-12040"),
        (i32::MIN, "-2147483648"),
    ] {
        let version = CudaVersion::from_number(number);
        assert_eq!(version.number(), number);
        assert_eq!(version.to_string(), text);
        assert_eq!(format!("{version:?}"), format!("CudaVersion({text})"));
    }
}

#[test]
fn nonsense_is_refused_and_quoted() {
    let nonsense = [
        "",
        ".",
        "..",
        "12",
        "12.",
        ".4",
        "12.4.1",
        "12..4",
        "12.4 ",
        " 12.4",
        "12 .4",
        "12,4",
        "v12.4",
        "12.4a",
        "12.x",
        "x.4",
        "-12.4",
        "12.-4",
        "0x12.4",
        "12.100",
        "65536.0",
        "12.65536",
        "99999999999999999999.0",
        "12040",
        "１２.４",
        "12.4\0",
        "12.4\n",
        "CUDA 12.4",
    ];
    for text in nonsense {
        let error = text.parse::<CudaVersion>().expect_err(text).to_string();
        assert!(error.contains(&format!("{text:?}")), "{error}");
        assert!(error.contains("CUDA version"), "{error}");
    }
}

#[test]
fn versions_with_signs_are_refused() {
    for text in ["+12.4", "12.+4", "+12.+4"] {
        text.parse::<CudaVersion>().expect_err(text);
    }
}
