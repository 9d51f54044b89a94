//! `atoll audit verify`: verifies the audit trail in its data folder. It needs no server and changes nothing,
//! so a copy of the folder can be verified as well; it needs the server's secret, and so its user or root.

use crate::{cli, database, serve};
use atoll_audit::{AuditKey, Fault, Report, Verdict};
use atoll_types::{Error, Result};
use serde_json::json;
use std::path::Path;

/// A row was tampered with.
const FAULTY: u8 = 1;
/// Verification was not possible.
const UNSURE: u8 = 2;

/// Verifies the trail, and prints the verdict.
pub(crate) async fn verify(options: &cli::AuditVerify) -> Result<u8> {
    if options.ask.remote() {
        return Ok(atoll_cli::verify_audit(&options.ask, options.expect.as_deref()).await);
    }
    match look(&options.data.dir(), options.expect.as_deref()).await {
        Ok(verdict) if options.ask.json() => Ok(tell_programs(&verdict)),
        Ok(verdict) => Ok(tell(&verdict)),
        Err(error) => {
            eprintln!("atoll: it cannot be verified: {error}");
            Ok(UNSURE)
        }
    }
}

fn expected(text: &str) -> Result<(u64, atoll_audit::Mac)> {
    let wrong = || Error::invalid("expect", "--expect: expected a row and its code, such as 120:9f86d0…");
    let (seq, mac) = text.split_once(':').ok_or_else(wrong)?;
    Ok((seq.parse().map_err(|_| wrong())?, mac.parse().map_err(|_| wrong())?))
}

async fn look(data_dir: &Path, expect: Option<&str>) -> Result<Verdict> {
    let expect = expect.map(expected).transpose()?;
    let key = AuditKey::from_secret(&serve::secret::load(&serve::secret_key(data_dir))?);
    // The operator may see the details that a caller of the API may not.
    let plainly = |e: atoll_audit::StoreError| Error::internal(e.to_string());
    let store = database::open_read_only(data_dir).await?;
    let verdict = atoll_audit::verify(&*store.store(), &key, &serve::audit_head(data_dir), expect)
        .await
        .map_err(plainly);
    store.close().await;
    verdict
}

fn tell(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Sound(report) => {
            if report.last == 0 {
                say!("sound: nothing was recorded yet");
                return 0;
            }
            say!(
                "sound: rows {} to {}, {} operations, {} of them not ended",
                report.first,
                report.last,
                report.operations,
                report.open
            );
            report.remarks.iter().for_each(|remark| say!("remark: {remark}"));
            say!("to compare later: --expect {}:{}", report.last, report.mac);
            0
        }
        Verdict::Faulty { first, noted } => {
            say!("NOT SOUND: {}", sentence(first));
            noted.iter().for_each(|fault| say!("also: {}", sentence(fault)));
            FAULTY
        }
        Verdict::Unsure(why) => {
            say!("it cannot be verified: {why}");
            UNSURE
        }
    }
}

/// The same as JSON, as the server's own response has it.
fn tell_programs(verdict: &Verdict) -> u8 {
    let fault =
        |Fault { kind, seq, text }: &Fault| json!({ "seq": seq, "kind": kind.to_string(), "message": text });
    let (code, said) = match verdict {
        Verdict::Sound(Report { first, last, mac, operations, open, remarks }) => (
            0,
            json!({ "sound": true, "first_fault": null, "noted": [], "unsure": null, "first": first, "last": last,
                "mac": mac, "operations": operations, "open": open, "remarks": remarks }),
        ),
        Verdict::Faulty { first, noted } => {
            let noted: Vec<_> = noted.iter().map(fault).collect();
            (FAULTY, json!({ "sound": false, "first_fault": fault(first), "noted": noted, "unsure": null }))
        }
        Verdict::Unsure(why) => {
            (UNSURE, json!({ "sound": false, "first_fault": null, "noted": [], "unsure": why }))
        }
    };
    say!("{said}");
    code
}

fn sentence(fault: &Fault) -> String {
    format!("{} at row {}: {}", fault.kind, fault.seq, fault.text)
}
