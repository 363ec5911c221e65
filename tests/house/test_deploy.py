"""The files in `deploy/` match the broker: settings, ports, commands, and no root.

Nothing is started here: `make packages` builds and starts the Debian package and the image.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from leveret.cli.root import COMMANDS
from leveret.config import describe_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
VARIABLE = re.compile(r"\bLEVERET_[A-Z_]+\b")

#: Variables of builds and of commands, and those that a user of the compose file must set.
NO_SETTINGS = {
    "LEVERET_PURE",
    "LEVERET_REQUIRE_COMPILED",
    "LEVERET_URI",
    "LEVERET_USER",
    "LEVERET_PASSWORD",
}


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def stages(path: Path) -> list[list[str]]:
    """Return the instructions of a container file, stage by stage, without comments."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[str]] = []
    for line in filter(str.strip, text.split("\n")):
        if line.startswith("FROM "):
            found.append([])
        if found:  # arguments may come before the first stage
            found[-1].append(line)
    return found


@pytest.fixture
def pod() -> Any:
    """The pod of the Kubernetes manifest."""
    kinds = {one["kind"]: one for one in documents(DEPLOY / "kubernetes" / "base" / "leveret.yaml")}
    return kinds["StatefulSet"]["spec"]["template"]["spec"]


@pytest.fixture
def broker(pod: Any) -> Any:
    """The broker's container of that pod."""
    (container,) = pod["containers"]
    return container


def test_every_variable_is_a_setting() -> None:
    known = {setting.variable for setting in describe_settings()} | NO_SETTINGS
    found = {
        (path.name, variable)
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for variable in VARIABLE.findall(re.sub(r"#.*", "", path.read_text()))
    }
    assert found
    assert [one for one in sorted(found) if one[1] not in known] == []


def test_the_container_runs_a_broker_as_nobody_special() -> None:
    _, image = stages(DEPLOY / "container" / "Containerfile")
    assert [line for line in image if line.startswith("USER ")] == ["USER 10001:10001"]
    assert 'ENTRYPOINT ["leveret"]' in image
    assert 'CMD ["serve"]' in image
    (health,) = [line for line in image if line.startswith("HEALTHCHECK ")]
    assert '"leveret", "ping"' in health
    assert {"serve", "ping"} <= set(COMMANDS)


def test_what_is_copied_into_a_build_is_there_and_not_ignored() -> None:
    allowed = set((DEPLOY.parent / ".dockerignore").read_text().split())
    for file in (
        DEPLOY / "container" / "Containerfile",
        DEPLOY / "compose" / "Containerfile.spark",
    ):
        copies = [line.split()[1:-1] for line in stages(file)[0] if line.startswith("COPY ")]
        assert copies
        # A copy of the whole checkout is one of what a build needs of it.
        needed = ["LICENSE", "README.md", "pyproject.toml", "setup.py", "src"]
        for name in (one for names in copies for one in (needed if names == ["."] else names)):
            assert (DEPLOY.parent / name).exists()
            assert f"!{name}" in allowed


def test_no_password_in_what_is_deployed_has_a_default() -> None:
    """Each is ultimately a variable that must be set, or the name of a secret."""
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    found = {
        (name, variable): str(value)
        for name, service in compose["services"].items()
        for variable, value in service.get("environment", {}).items()
        if "PASS" in variable or "PASSWORD" in str(value)
    }
    assert {"leveret", "spark", "grafana"} <= {name for name, _ in found}
    for place, value in found.items():
        # The default of a variable may be another variable, which must be set.
        last = re.sub(r"\$\{[A-Z_]+:-(?=\$)", "", value)
        ways = re.findall(r"\$\{[A-Z_]*PASSWORD(.{,2})", last)
        assert ways, place
        assert set(ways) == {":?"}, place
    manifests = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
    assert manifests
    for document in (one for path in manifests for one in documents(path)):
        assert not re.search(r"(?i)pass\w*['\"]?: *['\"]?[^{\s]", yaml.safe_dump(document))


def test_compose_publishes_to_its_machine_alone_and_asks_for_a_password() -> None:
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    broker = compose["services"]["leveret"]
    assert broker["ports"]
    assert all(port.startswith("127.0.0.1:") for port in broker["ports"])
    assert broker["environment"]["LEVERET_DEFAULT_PASS"].startswith("${LEVERET_PASSWORD:?")
    assert broker["read_only"] is True
    services = compose["services"]
    for service in (one for one in services.values() if "build" in one):
        build = service["build"]
        file = (DEPLOY / "compose" / build["context"]).resolve() / build["dockerfile"]
        assert file.is_file()


def test_compose_has_prometheus_and_grafana_of_one_version_with_files_that_are_there() -> None:
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    services = compose["services"]
    assert services["leveret"]["environment"]["LEVERET_METRICS_HOST"] == "0.0.0.0"  # noqa: S104
    for name in ("prometheus", "grafana"):
        service = services[name]
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        bound = [one.split(":")[0] for one in service["volumes"] if one.startswith("..")]
        assert bound
        assert all((DEPLOY / "compose" / one).is_dir() for one in bound)
    (prometheus,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    for job in prometheus["scrape_configs"]:
        assert job["static_configs"] == [{"targets": ["leveret:15692"]}]
    for rules in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / rules).is_file()


def test_kubernetes_runs_it_as_the_user_of_the_image(pod: Any, broker: Any) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert broker["securityContext"]["readOnlyRootFilesystem"] is True
    assert broker["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    # All written files are on volumes.
    assert {one["mountPath"] for one in broker["volumeMounts"]} == {"/var/lib/leveret", "/tmp"}  # noqa: S108


def test_kubernetes_asks_a_broker_by_commands_and_ports_that_are_there(broker: Any) -> None:
    ports = {port["name"]: port["containerPort"] for port in broker["ports"]}
    assert ports["amqp"] == 5672
    assert broker["readinessProbe"]["tcpSocket"]["port"] in ports
    for name in ("startupProbe", "livenessProbe"):
        program, command, *_ = broker[name]["exec"]["command"]
        assert (program, command) == ("leveret", "ping")
        given = float(broker[name]["exec"]["command"][-1])
        assert given < broker[name]["timeoutSeconds"]


def test_kubernetes_opens_ports_of_the_broker_to_chosen_pods_alone(pod: Any, broker: Any) -> None:
    """With TLS, a port without it is neither opened nor listened on."""
    plain, secure = (
        documents(DEPLOY / "kubernetes" / variant / "network-policy.yaml")[0]["spec"]["ingress"]
        for variant in ("base", "tls")
    )
    (patched,) = documents(DEPLOY / "kubernetes" / "tls" / "statefulset.yaml")
    (changed,) = patched["spec"]["template"]["spec"]["containers"]
    closed = {one["containerPort"] for one in changed["ports"] if one.get("$patch") == "delete"}
    names = {one["name"] for one in broker["ports"]}
    left = {one["name"] for one in broker["ports"] if one["containerPort"] not in closed}
    left |= {one["name"] for one in changed["ports"] if "name" in one}
    for rules, listening in ((plain, names), (secure, left)):
        assert {one["port"] for rule in rules for one in rule["ports"]} == listening
        assert all(rule["from"] for rule in rules)
    environment = {one["name"]: one["value"] for one in changed["env"]}
    assert (environment["LEVERET_AMQP"], environment["LEVERET_HTTP"]) == ("false", "false")


def test_kubernetes_policies_select_the_broker() -> None:
    kinds = {one["kind"]: one for one in documents(DEPLOY / "kubernetes" / "base" / "leveret.yaml")}
    labels = kinds["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    (policy,) = documents(DEPLOY / "kubernetes" / "base" / "network-policy.yaml")
    (budget,) = documents(DEPLOY / "kubernetes" / "base" / "disruption-budget.yaml")
    assert policy["spec"]["podSelector"] == {"matchLabels": labels}
    assert budget["spec"]["selector"] == {"matchLabels": labels}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd checks its own units")
def test_systemd_knows_all_of_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "leveret.service").read_text()
    # The command and the page are installed elsewhere.
    unit = unit.replace("/opt/leveret/bin/leveret", "/bin/true").replace("man:leveret(1) ", "")
    file = tmp_path / "leveret.service"
    file.write_text(unit)
    run = subprocess.run(
        ["systemd-analyze", "verify", file], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_the_unit_waits_for_what_the_broker_tells() -> None:
    unit = (DEPLOY / "systemd" / "leveret.service").read_text()
    assert "Type=notify\n" in unit
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, flags=re.MULTILINE)
    before, _, after = command.partition(" serve ")
    assert re.findall(r"--[a-z-]+", before) == ["--config"]
    flags = {setting.flag for setting in describe_settings()}
    assert set(re.findall(r"--[a-z-]+", after)) <= flags
