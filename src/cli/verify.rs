//! `sonobuoy verify`: checks the seal of an archive, using only files.

use std::path::Path;

use super::flag::Args;
use super::output;
use crate::remote::seal;
use crate::report;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let archive = report::locate(args.text("archive").unwrap_or_default())?;
    let archive = Path::new(&archive);
    anyhow::ensure!(
        !archive.is_dir(),
        "`{}` is an unpacked archive; only the packed one is sealed",
        archive.display()
    );
    let digest_only = args.on("digest-only");
    let checked = seal::check_file(archive, args.text("authority").map(Path::new), digest_only)?;
    let statement = &checked.statement;
    let own = archive.file_name().unwrap_or_default().to_string_lossy();
    let renamed =
        if own == statement.name { String::new() } else { format!(", sealed as `{}`", statement.name) };
    if checked.signed {
        let (run, size, sha256) = (&statement.run, statement.size, &statement.sha256);
        output::line(format!("{own}{renamed}: OK, sealed by run {run}: {size} bytes, SHA-256 {sha256}"))?;
    } else {
        anyhow::ensure!(
            digest_only,
            "`{own}` has the size and SHA-256 that its seal states, but who sealed it is unknown: the certificate of the authority of run {} \
             is not kept here; name the file that has it with `--authority`, or accept the digest alone with `--digest-only`",
            statement.run
        );
        output::print(&format!("{own}{renamed}: digest OK, seal not checked\n"))?;
    }
    Ok(0)
}
