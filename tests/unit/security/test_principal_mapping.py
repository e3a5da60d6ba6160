"""Subjects of certificates become users by Kafka's rules (cases of SslPrincipalMapperTest)."""

from __future__ import annotations

import pytest

from muster_coordinator.security.principal_mapping import NoPrincipalError, distinguished_name, parse_mapping

RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_counts(name: str, user: str) -> None:
    assert parse_mapping(RULES)(name) == user


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1@$2/", "CN=a", "a@$2"),
        ("RULE:^CN=(.*)$/x$10/", "CN=a", "x$10"),
        (r"RULE:^CN=(.*?)\/.*$/\$$1\/b/", "CN=a/c", "$a/b"),
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/", "CN=Tkac\\, Adam,OU=ITZ", "Tkac\\, Adam"),
        ("RULE:^CN=(a)?(.*)$/$1-$2/", "CN=b", "-b"),
    ],
)
def test_replacement(rules: str, name: str, user: str) -> None:
    assert parse_mapping(rules)(name) == user


@pytest.mark.parametrize("name", ["CN=b", "xCN=a", "CN=ab", ""])
def test_subject_that_no_rule_names_is_nobody(name: str) -> None:
    with pytest.raises(NoPrincipalError):
        parse_mapping("RULE:CN=(a)/$1/")(name)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=.*$/$1",
        "RULE:^CN=.*/L",
        "RULE:(/$1/",
        "x,DEFAULT",
    ],
)
def test_rule_of_another_form_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"no rule at|is no pattern"):
        parse_mapping(rules)


def test_name_is_written_as_java_does() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", 'Müller, "Söhne" <GmbH>'),),
        (("organizationalUnitName", " a+b "),),
        (("commonName", "#billing"), ("userId", "7")),
    )
    assert distinguished_name({"subject": subject}) == (
        'CN=\\#billing+UID=7,OU=\\ a\\+b\\ ,O=Müller\\, \\"Söhne\\" \\<GmbH\\>,C=DE'
    )
    assert distinguished_name({}) == ""
