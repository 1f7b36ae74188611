//! `REMAT_ARENA=BYTES[,ALIGNMENT]`: the size of an arena, given before the program starts.

/// Torch's own alignment of tensors (`c10::gAlignment`).
pub const HOST_ALIGNMENT: u64 = 64;

/// Alignment of blocks on CUDA devices, that of torch's own allocator.
pub const DEVICE_ALIGNMENT: u64 = 512;

/// The size of an arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Bytes of the arena.
    pub bytes: u64,
    /// Alignment of blocks in bytes, a power of two. Addresses and sizes are multiples of it.
    pub alignment: u64,
}

impl Setting {
    /// Reads `BYTES[,ALIGNMENT]`, both decimal.
    ///
    /// # Errors
    /// A line that names the text and the expected form.
    pub fn parse(text: &str, alignment: u64) -> Result<Setting, String> {
        let number = |part: &str| {
            let digits = part.trim();
            digits
                .parse::<u64>()
                .map_err(|_| {
                    format!(
                        "{digits:?} is no number of bytes; expected BYTES[,ALIGNMENT], such as 268435456,64"
                    )
                })
        };
        match text.split_once(',') {
            None => Ok(Setting {
                bytes: number(text)?,
                alignment,
            }),
            Some((bytes, alignment)) => Ok(Setting {
                bytes: number(bytes)?,
                alignment: number(alignment)?,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_alone_take_the_usual_alignment() {
        assert_eq!(
            Setting::parse("4096", 64),
            Ok(Setting {
                bytes: 4096,
                alignment: 64
            })
        );
        assert_eq!(
            Setting::parse(" 4096 , 512 ", 64),
            Ok(Setting {
                bytes: 4096,
                alignment: 512
            })
        );
    }

    #[test]
    fn what_is_no_number_is_named() {
        for text in [
            "",
            "12x",
            "-1",
            "18446744073709551616",
            "4096,",
            "4096,64,1",
            "1 2",
        ] {
            let refusal = Setting::parse(text, 64).unwrap_err();
            assert!(
                refusal.contains("is no number of bytes"),
                "{text}: {refusal}"
            );
        }
    }
}
