//! What commands take that write out something made from these definitions.

use std::path::PathBuf;

use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
For bash: paceline completions bash > ~/.local/share/bash-completion/completions/paceline
For fish: paceline completions fish > ~/.config/fish/completions/paceline.fish
For zsh: paceline completions zsh > _paceline, in a folder that is part of $fpath")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write one page per command into this folder, which is made if need be, in place of the main page to standard
    /// output
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
