"""Signatures are those of Standard Webhooks, so that any library of a receiver verifies them."""

import base64

from contracts.hooks.signatures import make_secret, show_secret, sign


def test_the_example_of_the_standard_is_signed_as_it_says() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_is_shown_in_the_form_that_libraries_take() -> None:
    secret = make_secret()
    assert len(secret) == 32
    assert base64.b64decode(show_secret(secret).removeprefix("whsec_")) == secret
    assert make_secret() != secret
