"""Settings for Django's own tests: two databases of the server behind $FRAMEWORKS_SOCKET, outcomes to $FRAMEWORKS_RESULTS."""

import os

_server = {
    "ENGINE": "django.db.backends.mysql",
    "USER": "root",
    "HOST": os.environ["FRAMEWORKS_SOCKET"],
    "TEST": {"CHARSET": "utf8mb4"},
}
DATABASES = {
    "default": {**_server, "NAME": "django"},
    "other": {**_server, "NAME": "django_other"},
}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "record_django.Runner"
