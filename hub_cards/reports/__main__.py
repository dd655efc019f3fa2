from longhand.hub_cards.reports.documents import main

main()
