//! `remat trace convert`.

use crate::failure::{Failure, complain};
use crate::progress::Shown;
use remat_trace::convert::ConvertError;
use remat_trace::{Format, Header};
use std::path::Path;

pub(crate) fn run(input: &Path, output: &Path, to: Option<Format>) -> Result<(), Failure> {
    let reader = remat_trace::open(input)?;
    let header = reader
        .header()
        .cloned()
        .unwrap_or_else(|| header_for_log(input));
    let to = to.unwrap_or_else(|| Format::of_name(output));
    let lost =
        remat_trace::convert(Shown::new(reader, input), &header, output, to).map_err(|error| {
            match error {
                ConvertError::Write(error) => Failure::write(&output.display().to_string(), error),
                other => Failure::Input(other.to_string()),
            }
        })?;
    if !lost.is_nothing() {
        complain(format_args!(
            "remat: a DTR log cannot say everything; left out: {lost}"
        ));
    }
    Ok(())
}

fn header_for_log(input: &Path) -> Header {
    let mut header = Header::default();
    let source = input
        .file_name()
        .map_or_else(|| "-".into(), |name| name.to_string_lossy().into_owned());
    header.about.insert("converted_from".into(), source);
    header
}
