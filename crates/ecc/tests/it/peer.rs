//! The bytes of bchlib, which is the Linux kernel's BCH: parities, corrections and refusals.

use std::path::Path;
use std::process::Command;

use deepram_ecc::{Bch, Kernel};
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{flip, positions};

/// Reads a line a case: t, polynomial, m, data, and received data and parity, all bytes in hexadecimal. Prints the parity
/// and the positions of the errors, or a negative number.
const SCRIPT: &str = r#"
import sys, bchlib
for line in sys.stdin:
    t, polynomial, m, data, received, parity = line.split()
    code = bchlib.BCH(int(t), int(polynomial), int(m))
    count = code.decode(bytes.fromhex(received), bytes.fromhex(parity))
    found = " ".join(map(str, sorted(code.errloc))) if count >= 0 else "refused"
    print(code.encode(bytes.fromhex(data)).hex(), found)
"#;

/// A Python that can import bchlib: that of `DEEPRAM_PEER_PYTHON`, `python3`, or a new environment with the package. The
/// reason where there is none.
fn python(folder: &Path) -> Result<String, String> {
    let imports = |python: &str| {
        let output = Command::new(python).args(["-c", "import bchlib"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    for python in std::env::var("DEEPRAM_PEER_PYTHON").into_iter().chain(["python3".into()]) {
        if imports(&python) {
            return Ok(python);
        }
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let environment = folder.join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python").display().to_string();
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "bchlib"];
    run(Command::new(&python).args(install).args(["--retries", "0", "--timeout", "10"]))?;
    Ok(python)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn parities_and_corrections_are_those_of_the_linux_kernel() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let python = match python(folder.path()) {
        Ok(python) => python,
        Err(reason) => {
            eprintln!("skipped: bchlib cannot be had: {reason}");
            return;
        }
    };
    let seed = 19;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let shapes = [
        (5, 2, 2),
        (5, 5, 1),
        (6, 3, 4),
        (7, 5, 9),
        (8, 4, 20),
        (9, 7, 50),
        (10, 12, 100),
        (11, 20, 100),
        (12, 8, 333),
        (13, 1, 512),
        (13, 4, 512),
        (13, 40, 512),
        (14, 12, 1024),
        (15, 8, 2048),
        (15, 64, 2048),
        (16, 12, 4096),
        (16, 40, 4096),
        (16, 64, 8063),
    ];
    let (mut input, mut expected) = (String::new(), Vec::new());
    for (m, t, data_len) in shapes {
        for errors in [0, 1, t / 2, t, t, t + 1, t + 2, 3 * t] {
            for kernel in [Kernel::Portable, Kernel::best()] {
                let code = Bch::builder(t, data_len).m(m).kernel(kernel).build().unwrap();
                let (mut data, mut parity) = (vec![0; data_len], vec![0; code.parity_len()]);
                rng.fill_bytes(&mut data);
                code.encode(&data, &mut parity).unwrap();
                let (mut received, mut received_parity) = (data.clone(), parity.clone());
                let all: Vec<usize> = positions(&code).collect();
                for at in sample(&mut rng, all.len(), errors.min(all.len())) {
                    flip(&mut received, &mut received_parity, all[at]);
                }
                let mut found = Vec::new();
                let result = match code.decode_into(&received, &received_parity, &mut found) {
                    Ok(()) => found.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
                    Err(_) => "refused".into(),
                };
                let fields = [hex(&data), hex(&received), hex(&received_parity)].join(" ");
                input += &format!("{t} {} {m} {fields}\n", code.polynomial());
                expected.push((format!("m {m}, t {t}, {errors} errors, {kernel}"), hex(&parity), result));
            }
        }
    }
    let file = folder.path().join("cases");
    std::fs::write(&file, input).unwrap();
    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .expect("running Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), expected.len());
    for (line, (case, parity, result)) in lines.lines().zip(expected) {
        assert_eq!(line.trim_end(), format!("{parity} {result}").trim_end(), "seed {seed}, {case}");
    }
}
