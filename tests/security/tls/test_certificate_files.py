"""The files of certificate and key: valid and invalid pairs, and when they are reloaded."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.certificates import Authority, encrypted, write

from dragoman.security.tls.certificate_files import CertificateFiles, InvalidFile


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_certificate_and_its_key_are_read_from_files(tmp_path: Path, authority: Authority) -> None:
    first, second = authority.issue(), authority.issue()
    certificates = CertificateFiles(*write(tmp_path, first))
    assert certificates.pair == first
    context = certificates.ssl_context
    assert not certificates.refresh()
    write(tmp_path, second)
    assert certificates.refresh()
    assert certificates.pair == second
    assert certificates.ssl_context is not context  # the sessions of the former one end


def test_an_empty_file_of_client_cas_leaves_client_certificates_on(tmp_path: Path, authority: Authority) -> None:
    pair, content = write(tmp_path, authority.issue()), authority.ca.read_bytes()
    certificates = CertificateFiles(*pair, authority.ca)
    authority.ca.write_bytes(b"")  # as in the middle of a write
    assert not certificates.refresh()
    assert certificates.client_authorities == content
    with pytest.raises(InvalidFile, match=r"ca\.pem must contain CA certificates in PEM; it is empty"):
        CertificateFiles(*pair, authority.ca)


@pytest.mark.parametrize(
    ("certificate", "key", "why"),
    [
        ("whole", "other", "key.pem is not the key of the certificate in "),
        ("half", "whole", "cert.pem must contain a certificate and "),
        ("whole", "half", "cert.pem must contain a certificate and "),
        ("empty", "whole", "cert.pem must contain a certificate and "),
        ("whole", "empty", "cert.pem must contain a certificate and "),
        ("whole", "encrypted", "key.pem is encrypted; a server needs a key without a passphrase"),
        ("absent", "whole", "cert.pem: No such file"),
        ("whole", "absent", "key.pem: No such file"),
    ],
)
def test_an_invalid_pair_is_rejected_and_logged(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, certificate: str, key: str, why: str
) -> None:
    good = authority.issue()
    files = write(tmp_path, good)
    certificates = CertificateFiles(*files)
    new, other = authority.issue(), authority.issue()
    forms = [
        {"whole": new[0], "half": new[0][:400], "empty": b"", "absent": None},
        {"whole": new[1], "half": new[1][:40], "empty": b"", "absent": None, "other": other[1]}
        | {"encrypted": encrypted(new[1])},
    ]
    for path, form, chosen in zip(files, forms, (certificate, key), strict=True):
        content = form[chosen]
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    with pytest.raises(InvalidFile, match=why):
        CertificateFiles(*files)
    caplog.set_level(logging.INFO, "dragoman.tls")
    assert not certificates.refresh()
    assert certificates.pair == good
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert why in record.getMessage()
    assert not certificates.refresh()  # logged once,
    assert len(caplog.records) == 1
    assert not certificates.refresh(force=True)  # and with `force` each time
    assert len(caplog.records) == 2
    write(tmp_path, new)
    assert certificates.refresh()
    assert certificates.pair == new


def test_rewritten_files_with_the_same_content_change_nothing(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue()
    certificates = CertificateFiles(*write(tmp_path, pair))
    write(tmp_path, pair)
    assert not certificates.refresh()


async def test_a_change_is_noticed_by_polling(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    taken = asyncio.Event()

    class WaitingHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            taken.set()

    reported = WaitingHandler()
    logging.getLogger("dragoman.tls").addHandler(reported)
    caplog.set_level(logging.INFO, "dragoman.tls")
    certificates = CertificateFiles(*write(tmp_path, authority.issue()))
    watching = asyncio.create_task(certificates.watch(0.001))
    write(tmp_path, new := authority.issue())
    await taken.wait()
    while certificates.pair != new:  # a poll may come between the two files
        taken.clear()
        await taken.wait()
    watching.cancel()
    logging.getLogger("dragoman.tls").removeHandler(reported)
