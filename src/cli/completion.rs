//! `sonobuoy completion`: a script that completes command lines in a shell. The script asks
//! [`super::candidates`].

use super::output;

/// The command that scripts ask for candidates, with or without descriptions.
pub(super) const CALL: &str = "__complete";
pub(super) const CALL_WITHOUT_DESCRIPTIONS: &str = "__completeNoDesc";

/// How to install the scripts in shells.
const INTO_SHELLS: &str = "\
In the shell's own start file, such as ~/.bashrc:
  bash        source <(sonobuoy completion bash)
  zsh         source <(sonobuoy completion zsh)    after compinit
  fish        sonobuoy completion fish | source
  powershell  sonobuoy completion powershell | Out-String | Invoke-Expression";

/// Print a script that completes command lines in a shell
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = INTO_SHELLS)]
pub(crate) struct CompletionArgs {
    /// Shell that completes with it
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// Leave out the descriptions
    #[arg(long)]
    no_descriptions: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

/// Prints the script for the requested shell.
pub(crate) fn run(args: &CompletionArgs) {
    let script = match args.shell {
        Shell::Bash => include_str!("complete.bash"),
        Shell::Zsh => include_str!("complete.zsh"),
        Shell::Fish => include_str!("complete.fish"),
        Shell::Powershell => include_str!("complete.ps1"),
    };
    let call = if args.no_descriptions {
        CALL_WITHOUT_DESCRIPTIONS
    } else {
        CALL
    };
    output::data(&script.replace(CALL, call));
}
