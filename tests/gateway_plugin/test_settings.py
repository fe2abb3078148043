from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.settings import PluginSettings, SettingsError, config_path_from_environment, load


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_need_no_file() -> None:
    assert load().enabled is True
    assert load("/does/not/exist.yaml").redis_url is None
    assert load("s3://bucket/config.yaml").redis_url is None


def test_the_section_of_the_proxys_config_is_read(tmp_path: Path) -> None:
    path = config(
        tmp_path, "model_list: []\nagentwatt_plugin: {stream_max_len: 5000, service_keys: [batch]}\n"
    )
    settings = load(path)
    assert settings.stream_max_len == 5000
    assert settings.service_keys == frozenset({"batch"})


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTWATT_PLUGIN__STREAM_MAX_LEN", "7000")
    assert load(config(tmp_path, "agentwatt_plugin: {stream_max_len: 5000}")).stream_max_len == 7000


def test_the_plain_redis_address_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def address(path: str | None = None) -> str | None:
        url = load(path).redis_url
        return url and url.get_secret_value()

    monkeypatch.setenv("REDIS_URL", "redis://plain")
    assert address() == "redis://plain"
    assert address(config(tmp_path, "agentwatt_plugin: {redis_url: 'redis://file'}")) == "redis://file"
    monkeypatch.setenv("AGENTWATT_PLUGIN__REDIS_URL", "redis://own")
    assert address(config(tmp_path, "agentwatt_plugin: {redis_url: 'redis://file'}")) == "redis://own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agentwatt_plugin: {stream_max_len: many}", "stream_max_len"),
        ("agentwatt_plugin: {stream_max_len: 1}", "stream_max_len"),
        ("agentwatt_plugin: {no_such_setting: 1}", "no_such_setting"),
        ("agentwatt_plugin: [1, 2]", "must be a mapping"),
        ("agentwatt_plugin: {a: [", "cannot read"),
    ],
)
def test_a_wrong_value_names_the_setting_and_where_it_is_set(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(config(tmp_path, text))


def test_a_file_that_is_no_text_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot read"):
        load(str(path))


@pytest.mark.parametrize("text", ["", "null", "[]", "agentwatt_plugin:\n"])
def test_a_file_without_the_section_gives_defaults(tmp_path: Path, text: str) -> None:
    assert load(config(tmp_path, text)) == PluginSettings()


def test_secrets_do_not_show_in_the_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PluginSettings(secret="canary-1", redis_url="redis://:canary-2@host")  # type: ignore[arg-type]
    assert "canary" not in repr(settings)


def test_every_setting_has_a_description() -> None:
    assert all(f.description for f in PluginSettings.model_fields.values())


def test_the_proxys_own_variables_name_the_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_path_from_environment() is None
    monkeypatch.setenv("CONFIG_FILE_PATH", "/a.yaml")
    assert config_path_from_environment() == "/a.yaml"


def test_environment_values_of_every_type_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {"ENABLED": "false", "USER_PRECEDENCE": '["key"]', "REDIS_TIMEOUT_S": "0.5"}
    for name, value in values.items():
        monkeypatch.setenv(f"AGENTWATT_PLUGIN__{name}", value)
    settings = load()
    assert (settings.enabled, settings.user_precedence, settings.redis_timeout_s) == (False, ("key",), 0.5)
