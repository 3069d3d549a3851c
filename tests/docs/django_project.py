"""The Django project that readers of the guides already have: accounts, sessions, and an app."""

from __future__ import annotations

from tests.docs.reader import Reader

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "a key for the tests of the guides, and for nothing else"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "presence"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "product.db"}}
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": ["templates"], "OPTIONS":
    {"context_processors": ["django.contrib.auth.context_processors.auth"]}}]
ROOT_URLCONF = "product"
LOGIN_URL = "/signed-out"
ALLOWED_HOSTS = ["127.0.0.1"]
DEBUG = True
"""
PRODUCT = """
from django.contrib.auth import get_user_model, login, logout
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import include, path

def sign_in(request, name):
    login(request, get_user_model().objects.get(username=name), "django.contrib.auth.backends.ModelBackend")
    return HttpResponse("signed in")

def sign_out(request):
    logout(request)
    return HttpResponse("signed out")

def authors(request):
    return render(request, "authors.html", {"authors": get_user_model().objects.order_by("pk")})

urlpatterns = [path("in/<name>", sign_in), path("out", sign_out), path("", authors), path("", include("urls"))]
"""
AUTHORS = """<!doctype html>
<title>Authors</title>
{%% for author in authors %%}<p>%s</p>{%% endfor %%}
{%% include "base.html" %%}
"""
EMPTY_URLS = "urlpatterns = []\n"


def begin(reader: Reader, **files: str) -> None:
    reader.save("manage.py", MANAGE)
    reader.save("settings.py", SETTINGS)
    reader.save("product.py", PRODUCT)
    reader.save("urls.py", EMPTY_URLS)
    for folder in ("presence", "presence/management", "presence/management/commands", "presence/migrations"):
        reader.save(f"{folder}/__init__.py", "")


async def migrate(reader: Reader) -> None:
    await reader.terminal().run("python manage.py makemigrations -v 0 presence && python manage.py migrate -v 0")


async def shell(reader: Reader, code: str) -> str:
    """Runs code of the project's own, as an administrator would."""
    reader.save("act.py", "import django\ndjango.setup()\nfrom django.contrib.auth.models import User\n" + code)
    terminal = reader.terminal()
    terminal.environment["DJANGO_SETTINGS_MODULE"] = "settings"
    return await terminal.run("python act.py")
