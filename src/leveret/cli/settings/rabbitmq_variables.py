"""Variables of RabbitMQ in the environment that have no effect, and what to set instead.

`config` reads some of RabbitMQ's variables, such as `RABBITMQ_DEFAULT_USER`.  An image or a
manifest made for RabbitMQ may set others, which must not be ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from leveret.config import ENVIRONMENT_PREFIX, RABBITMQ_VARIABLES, Settings, is_service_link

PREFIX: Final = "RABBITMQ_"

#: Variables of RabbitMQ and of its images, and the settings that do the same.
_SETTINGS: Final = {
    "NODE_IP_ADDRESS": "host",
    "NODE_PORT_NUMBER": "port",
    "MANAGEMENT_PORT_NUMBER": "http_port",
    "MANAGEMENT_BIND_IP": "http_host",
    "USERNAME": "default_user",
    "PASSWORD": "default_pass",
    "PASSWORD_FILE": "default_pass_file",
    "VHOST": "default_vhost",
    "DEFAULT_USER_FILE": "default_user",
    "DEFAULT_VHOST_FILE": "default_vhost",
    "DEFINITIONS_FILE": "load_definitions",
    "MNESIA_BASE": "data_dir",
    "MNESIA_DIR": "data_dir",
    "LOG": "log_level",
    "VM_MEMORY_HIGH_WATERMARK": "memory_bytes_max",
    "DISK_FREE_ABSOLUTE_LIMIT": "disk_free_bytes_min",
    "DISK_FREE_LIMIT": "disk_free_bytes_min",
    "SSL_CACERTFILE": "tls_ca",
    "SSL_CERTFILE": "tls_certificate",
    "SSL_KEYFILE": "tls_key",
    "SSL_KEY_PASSWORD": "tls_key_passphrase",
    "SSL_VERIFY": "tls_verify",
    "SSL_FAIL_IF_NO_PEER_CERT": "tls_verify",
    "MANAGEMENT_SSL_CACERTFILE": "tls_ca",
    "MANAGEMENT_SSL_CERTFILE": "tls_certificate",
    "MANAGEMENT_SSL_KEYFILE": "tls_key",
}

#: Variables without such a setting, and the remedy.
_CONVERT: Final = (
    "convert the file with leveret config from-rabbitmq, and name the result in LEVERET_CONFIG_FILE"
)
_LOG: Final = "the log goes to standard error"
_NO_ERLANG: Final = "there is no Erlang node and no cluster to configure"
_NO_PLUGINS: Final = "there are no plugins"
_OTHERS: Final = {
    "CONFIG_FILE": _CONVERT,
    "CONFIG_FILES": _CONVERT,
    "ADVANCED_CONFIG_FILE": _CONVERT,
    "CONF_ENV_FILE": "set the variables in the broker's environment",
    "LOGS": _LOG,
    "LOG_BASE": _LOG,
    "NODENAME": _NO_ERLANG,
    "USE_LONGNAME": _NO_ERLANG,
    "ERLANG_COOKIE": _NO_ERLANG,
    "DIST_PORT": _NO_ERLANG,
    "SERVER_ERL_ARGS": _NO_ERLANG,
    "SERVER_ADDITIONAL_ERL_ARGS": _NO_ERLANG,
    "SERVER_START_ARGS": _NO_ERLANG,
    "CTL_ERL_ARGS": _NO_ERLANG,
    "ENABLED_PLUGINS_FILE": _NO_PLUGINS,
    "PLUGINS": _NO_PLUGINS,
    "PLUGINS_DIR": _NO_PLUGINS,
}


def without_effect(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables without an effect, each with its remedy.

    A variable is left out if the setting that does the same is in the environment, too.
    """
    used = set(RABBITMQ_VARIABLES.values())
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in used or not value:
            continue
        word = variable.removeprefix(PREFIX)
        setting = _SETTINGS.get(word, word.lower())
        ours = ENVIRONMENT_PREFIX + setting.upper()
        if is_service_link(variable, value) or environment.get(ours):
            continue
        if word in _OTHERS:
            yield variable, _OTHERS[word]
        elif setting in Settings.model_fields:
            yield variable, f"set {ours}"
