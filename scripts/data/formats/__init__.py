"""Read the rows of files: tables, texts, objects of JSON and translations, with bad ones told from their neighbours."""
