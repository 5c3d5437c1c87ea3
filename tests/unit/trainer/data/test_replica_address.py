"""Where the settings say that a standby is, and how to log in there."""

from pathlib import Path

from sqlalchemy import make_url

from trainer.settings import TrainerSettings


def test_a_standby_takes_the_password_of_its_primary_unless_its_address_has_one(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s€cret\n")

    def password_at(url: str) -> str | None:
        settings = TrainerSettings(read_database_url=url, database_password_file=file)
        assert settings.read_database_url is not None
        return make_url(settings.read_database_url).password

    assert password_at("postgres://morrow@one,two/morrow") == "s€cret"
    assert password_at("postgres://reader:own@one/morrow") == "own"
    again = TrainerSettings(read_database_url="postgres://morrow@one/morrow", database_password_file=file)
    assert TrainerSettings(**again.model_dump(mode="json")).read_database_url == again.read_database_url
