"""`python -m trainer` runs the trainer with settings from the environment; `… check` exits 0 while it is alive.

The check, which a container makes every few seconds, loads nothing of what the trainer runs on.
"""

if __name__ == "__main__":
    from contracts.runtime.entry import begin, exit_with_sentence

    begin()
    import sys
    from datetime import UTC, datetime

    from trainer.scheduling.liveness import is_alive
    from trainer.scheduling.workers.library_loading import fast_imports
    from trainer.settings import TrainerSettings

    with exit_with_sentence():
        settings = TrainerSettings()
    if sys.argv[1:] == ["check"]:
        sys.exit(0 if is_alive(settings, datetime.now(UTC)) else 1)
    with fast_imports():
        from contracts.runtime.logs import configure_logs
        from trainer.scheduling.scheduler import run_trainer

    configure_logs(settings)
    with exit_with_sentence():
        run_trainer(settings)
