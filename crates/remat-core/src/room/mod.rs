//! Making room: evicting until so many bytes fit, counted or side by side.

mod bytes;
mod limits;
mod placing;
mod settling;
mod shortage;
mod windows;
