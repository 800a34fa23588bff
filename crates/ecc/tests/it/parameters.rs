//! Parameters: the defaults, and errors that say what would be right.

use deepram_ecc::{Bch, CodeError, Kernel, LengthError, PageCodec};

#[test]
fn the_smallest_field_that_holds_data_and_parity_is_the_default() {
    for (data_len, m) in [(512, 13), (1024, 14), (2048, 15), (4096, 16), (8000, 16), (1, 5)] {
        let code = Bch::new(1, data_len).unwrap();
        assert_eq!(code.m(), m, "{data_len} bytes");
        assert_eq!(code.parity_len(), (m as usize).div_ceil(8));
    }
    let code = Bch::new(12, 512).unwrap();
    assert_eq!((code.m(), code.t(), code.parity_bits(), code.parity_len()), (13, 12, 156, 20));
    // 8191 bits hold 1017 bytes and 4 · 13 bits, but no byte more.
    assert_eq!(Bch::new(4, 1017).unwrap().m(), 13);
    assert_eq!(Bch::new(4, 1018).unwrap().m(), 14);
    assert_eq!(Bch::new(1, 8189).unwrap().m(), 16);
}

#[test]
fn impossible_parameters_are_errors_that_say_what_is_possible() {
    for (builder, error, text) in [
        (Bch::builder(0, 512), CodeError::Strength { t: 0 }, "t is 0; expected 1 to 64"),
        (Bch::builder(65, 512), CodeError::Strength { t: 65 }, "t is 65; expected 1 to 64"),
        (Bch::builder(4, 0), CodeError::NoData, "at least 1 byte"),
        (Bch::builder(4, 512).m(4), CodeError::Degree { m: 4 }, "m is 4; expected 5 to 16"),
        (Bch::builder(4, 512).m(17), CodeError::Degree { m: 17 }, "expected 5 to 16"),
        (
            Bch::builder(4, 1018).m(13),
            CodeError::TooLong { data_len: 1018, m: 13, t: 4, max: 1017 },
            "at most 1017 bytes of data with t = 4",
        ),
        (
            Bch::builder(1, 8192),
            CodeError::TooLong { data_len: 8192, m: 16, t: 1, max: 8189 },
            "at most 8189 bytes",
        ),
        (
            Bch::builder(1, usize::MAX),
            CodeError::TooLong { data_len: usize::MAX, m: 16, t: 1, max: 8189 },
            "at most 8189 bytes",
        ),
        (
            Bch::builder(64, 1).m(5),
            CodeError::TooLong { data_len: 1, m: 5, t: 64, max: 0 },
            "at most 0 bytes",
        ),
    ] {
        let found = builder.build().expect_err(text);
        assert_eq!(found, error);
        assert!(found.to_string().contains(text), "{found}");
    }
    assert_eq!(
        PageCodec::new(4, 512, 0).expect_err("no codeword").to_string(),
        "0 codewords for a page of 512 bytes; expected 1 to 512"
    );
    assert_eq!(PageCodec::new(4, 0, 1).expect_err("no data"), CodeError::NoData);
    assert!(PageCodec::new(4, 8192, 1).is_err(), "8 KiB do not fit into one codeword");
    assert!(PageCodec::new(4, usize::MAX, 1).is_err());
}

#[test]
fn kernels_of_other_processors_are_refused() {
    assert!(Kernel::available().any(|kernel| kernel == Kernel::Portable));
    assert!(Kernel::best().is_available());
    for kernel in Kernel::ALL {
        let built = Bch::builder(1, 64).kernel(kernel).build().map(|code| code.kernel());
        if kernel.is_available() {
            assert_eq!(built, Ok(kernel));
        } else {
            let error = built.expect_err("the processor lacks the instructions");
            assert_eq!(error, CodeError::Kernel { kernel });
            assert!(error.to_string().contains("portable, table"), "{error}");
        }
    }
}

#[test]
fn buffers_of_another_length_are_errors() {
    let code = Bch::new(4, 512).unwrap();
    let (mut data, mut parity) = ([0; 512], [0; 7]);
    let length = |part, len, expected| LengthError { part, len, expected };
    assert_eq!(code.encode(&data[1..], &mut parity), Err(length("data", 511, 512)));
    assert_eq!(code.encode(&data, &mut parity[1..]), Err(length("parity", 6, 7)));
    assert_eq!(code.decode(&mut data[..500], &mut parity), Err(length("data", 500, 512).into()));
    assert_eq!(code.decode_into(&data, &[], &mut Vec::new()), Err(length("parity", 0, 7).into()));
    let codec = PageCodec::new(4, 512, 1).unwrap();
    assert_eq!(codec.stored_len(), 512 + 4 + 7);
    assert_eq!(codec.encode(&mut data), Err(length("page", 512, 523)));
    assert_eq!(codec.decode(&mut []), Err(length("page", 0, 523).into()));
}
